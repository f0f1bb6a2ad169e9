# Photon's images. No BuildKit needed: docker-compose 1.29 builds it too.
#   photon   every service, and the command line; target `photon`
#   certs    the same with a mount point for each of IDENTITIES; target `certs`
#   spark    the same with Java and Spark, for a join on Spark; target `spark`
#   hbase    an HBase of one machine with its Thrift servers; target `hbase`
#   prometheus   Prometheus and Alertmanager, for the profile monitoring; target `prometheus`
# Bookworm by name: it has the Java 17 that HBase wants. Without an image registry: deploy/docker/base_image.sh.
ARG BASE_IMAGE=python:3.11-slim-bookworm

FROM ${BASE_IMAGE} AS wheels
# Of pyproject.toml, for instance "kafka parquet"
ARG EXTRAS=
ENV PIP_DISABLE_PIP_VERSION_CHECK=1 PIP_NO_CACHE_DIR=1 PIP_ROOT_USER_ACTION=ignore
WORKDIR /source
COPY deploy/docker/*requirements.txt ./
# Without what no process loads: a second backend, tools for building, symbols of debuggers. Compiled here: at run time
# the file system cannot be written
RUN apt-get update -qq && apt-get install -y -qq --no-install-recommends binutils >/dev/null && rm -rf /var/lib/apt/lists/* \
 && python -m venv /build && /build/bin/pip install --quiet --require-hashes -r build-requirements.txt \
 && python -m venv --without-pip /opt/photon \
 && for each in $EXTRAS; do set -- "$@" -r "$each-requirements.txt"; done \
 && /build/bin/pip --python /opt/photon/bin/python install --quiet --no-compile --require-hashes -r requirements.txt "$@" \
 && cd /opt/photon/lib/python3.11/site-packages \
 && find . -type d -name tests -prune -exec rm -rf {} + \
 && find . \( -name '*.c' -o -name '*.cpp' -o -name '*.h' -o -name '*.pyx' -o -name '*.pyi' -o -name '*.a' \) -delete \
 && rm -rf numpy/f2py numpy/distutils zstandard/_cffi*.so && find pygments/lexers -name '[a-z]*.py' ! -name python.py -delete \
 && find uvloop zstandard $(ls -d thriftpy2 2>/dev/null) -name '*.so' -exec strip --strip-unneeded {} + && python -m compileall -q -j 0 /opt/photon/lib
COPY pyproject.toml README.md LICENSE NOTICE ./
COPY adapters adapters
COPY config config
COPY dispatcher dispatcher
COPY eventstore eventstore
COPY idregistry idregistry
COPY joiner joiner
COPY spark spark
COPY src src
RUN /build/bin/pip wheel --quiet --no-deps --no-build-isolation --wheel-dir /wheel . \
 && /build/bin/pip --python /opt/photon/bin/python install --quiet --no-deps --no-compile /wheel/*.whl \
 && python -m compileall -q -j 0 /opt/photon/lib/python3.11/site-packages/photon

FROM ${BASE_IMAGE} AS runtime
# A volume that is empty takes owner and content of its mount point: this is what makes it writable without root
RUN groupadd --gid 10001 photon && useradd --uid 10001 --gid photon --home-dir /nonexistent --no-create-home photon \
 && install -d -o photon -g photon -m 0750 /state /output /registry /key /certs /logs /logs/queries /logs/clicks \
    /feed /feed/1 /feed/1/queries /feed/1/clicks /feed/2 /feed/2/queries /feed/2/clicks
ENV PATH=/opt/photon/bin:$PATH PYTHONDONTWRITEBYTECODE=1 PYTHONUNBUFFERED=1
USER 10001:10001
WORKDIR /state
STOPSIGNAL SIGTERM
ENTRYPOINT ["photon"]
CMD ["--help"]

FROM runtime AS photon
LABEL org.opencontainers.image.title="photon" org.opencontainers.image.licenses="Apache-2.0"
COPY --from=wheels /opt/photon /opt/photon

FROM photon AS certs
ARG IDENTITIES
USER root
RUN for each in ca $IDENTITIES; do install -d -o photon -g photon -m 0700 "/certs/$each"; done
USER 10001:10001

FROM runtime AS java
USER root
# ca-certificates-java takes over the authorities that the base image trusts; one of its scripts wants man's directory
RUN mkdir -p /usr/share/man/man1 && apt-get update -qq \
 && apt-get install -y -qq --no-install-recommends openjdk-17-jre-headless ca-certificates >/dev/null \
 && rm -rf /var/lib/apt/lists/*

FROM ${BASE_IMAGE} AS spark-packages
WORKDIR /source
COPY deploy/docker/spark-requirements.txt deploy/docker/build-requirements.txt ./
RUN python -m venv /build && /build/bin/pip install --quiet --no-cache-dir --require-hashes -r build-requirements.txt \
 && /build/bin/pip install --quiet --no-cache-dir --no-deps --no-build-isolation --no-compile --require-hashes \
    --target /packages -r spark-requirements.txt \
 && cd /packages && rm -rf bin pyspark/data pyspark/examples pyarrow/include \
 && find . -type d -name tests -prune -exec rm -rf {} + && python -m compileall -q -j 0 .

# Photon comes last: what it is changes more often than Java and Spark
FROM java AS spark
LABEL org.opencontainers.image.title="photon-spark" org.opencontainers.image.licenses="Apache-2.0"
COPY --from=spark-packages /packages /opt/photon/lib/python3.11/site-packages
COPY --from=wheels /opt/photon /opt/photon
USER 10001:10001

# Debian's Prometheus and Alertmanager, for the profile monitoring where their images cannot be pulled. Before HBase: a builder
# without BuildKit makes every stage above the one that is wanted
FROM ${BASE_IMAGE} AS prometheus
RUN apt-get update -qq && apt-get install -y -qq --no-install-recommends prometheus prometheus-alertmanager >/dev/null \
 && rm -rf /var/lib/apt/lists/* && install -d -o prometheus -g prometheus -m 0750 /prometheus \
 && ln -s prometheus-alertmanager /usr/bin/alertmanager
USER prometheus
WORKDIR /prometheus
STOPSIGNAL SIGTERM
ENTRYPOINT ["/usr/bin/prometheus"]

# Jars that lie in deploy/hbase/.cache already (PHOTON_HBASE_CACHE=deploy/hbase/.cache standalone.py fetch) are taken as they are
FROM java AS jars
COPY deploy/hbase /opt/hbase
RUN if ls -d /opt/hbase/.cache/hbase-jars-* >/dev/null 2>&1; then mv /opt/hbase/.cache /opt/jars; else \
      apt-get update -qq && apt-get install -y -qq --no-install-recommends maven >/dev/null \
      && update-ca-certificates --fresh >/dev/null 2>&1 \
      && PHOTON_HBASE_CACHE=/opt/jars python3 /opt/hbase/standalone.py fetch; fi

FROM java AS hbase
RUN groupadd --gid 10002 hbase && useradd --uid 10002 --gid hbase --home-dir /hbase --no-create-home hbase \
 && install -d -o hbase -g hbase -m 0750 /hbase
COPY --from=jars /opt/jars /opt/jars
COPY deploy/hbase/standalone.py deploy/hbase/pom.xml /opt/hbase/
ENV PHOTON_HBASE_CACHE=/opt/jars PYTHONDONTWRITEBYTECODE=1 PYTHONUNBUFFERED=1
USER 10002:10002
WORKDIR /hbase
STOPSIGNAL SIGTERM
ENTRYPOINT ["python3", "/opt/hbase/standalone.py"]
CMD ["run", "--directory", "/hbase", "--host", "0.0.0.0", "--patience", "900"]
