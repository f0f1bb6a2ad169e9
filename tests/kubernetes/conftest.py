"""The image is built by the Docker of the tests of docker-compose."""

from tests.docker.conftest import docker as docker
