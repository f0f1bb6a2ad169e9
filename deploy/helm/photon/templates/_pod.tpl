{{/* Labels of a pod, by which it is selected too. Of: root, kind, datacentre; name, of a service. */}}
{{- define "photon.labels" -}}
app.kubernetes.io/name: photon
app.kubernetes.io/instance: {{ .root.Release.Name }}
app.kubernetes.io/component: {{ .kind }}
{{- with .datacentre }}
photon/datacentre: {{ quote . }}
{{- end }}
{{- with .name }}
photon/service: {{ quote . }}
{{- end }}
{{- end }}

{{/* "yes" where a service, or what else has a region, is installed by this release. Of: root, region. */}}
{{- define "photon.here" -}}
{{- if or (not .root.Values.region) (eq .root.Values.region .region) }}yes{{ end }}
{{- end }}

{{/* Fails in one line unless a name is one of a list. Of: what, name, known. */}}
{{- define "photon.known" -}}
{{- if not (has .name .known) }}{{ fail (printf "%s: the deployment has no %q; there are: %s" .what .name (join ", " .known)) }}{{ end }}
{{- end }}

{{/* Which replica a pod is: $1 of its shell. */}}
{{- define "photon.replica" -}}
set --{{ range . }} {{ .replica }}{{ end }}; shift "$POD_INDEX"
{{- end }}

{{/* The template of a pod. Of: root, kind, name, datacentre, region, mounts, memory, port, identities, and
     arguments (of photon), or replicas, or none: a pod that waits for commands. */}}
{{- define "photon.pod" -}}
{{- $values := .root.Values }}
{{- $memory := get $values.memory .kind | default .memory }}
{{- $more := list }}
{{- $kind := .kind }}
{{- range $values.volumes }}{{ if or (not .kinds) (has $kind .kinds) }}{{ $more = append $more . }}{{ end }}{{ end }}
{{- $every := ternary "[::]" "0.0.0.0" $values.ipv6 }}
metadata:
  labels:
    {{- include "photon.labels" . | nindent 4 }}
    {{- with $values.podLabels }}
    {{- toYaml . | nindent 4 }}
    {{- end }}
    {{- if has "state" .mounts }}
    photon/machine: {{ quote .datacentre }}
    {{- end }}
  annotations:
    photon/settings: {{ with $values.deployment.programs }}{{ sha256sum (print $values.deployment.file (toJson .)) }}{{ else }}{{ sha256sum $values.deployment.file }}{{ end }}
    {{- with $values.podAnnotations }}
    {{- toYaml . | nindent 4 }}
    {{- end }}
spec:
  automountServiceAccountToken: false
  enableServiceLinks: false
  terminationGracePeriodSeconds: {{ if eq .kind "operator" }}1{{ else }}40{{ end }}
  securityContext:
    runAsNonRoot: true
    runAsUser: 10001
    runAsGroup: 10001
    fsGroup: 10001
    fsGroupChangePolicy: OnRootMismatch
    seccompProfile: {type: RuntimeDefault}
    {{- with $values.supplementalGroups }}
    supplementalGroups: {{ toJson . }}
    {{- end }}
  serviceAccountName: {{ $values.serviceAccount.name | default (ternary .root.Release.Name "default" $values.serviceAccount.create) }}
  {{- with $values.priorityClassName }}
  priorityClassName: {{ . }}
  {{- end }}
  {{- with $values.image.pullSecrets }}
  imagePullSecrets: {{ toJson . }}
  {{- end }}
  {{- with $values.tolerations }}
  tolerations: {{ toJson . }}
  {{- end }}
  {{- $nodes := $values.nodeSelector }}
  {{- if and (ne .kind "registry") (get $values.zones .region) }}
  {{- $nodes = merge (dict "topology.kubernetes.io/zone" (get $values.zones .region)) $nodes }}
  {{- end }}
  {{- with $nodes }}
  nodeSelector: {{ toJson . }}
  {{- end }}
  {{- if eq .kind "registry" }}
  topologySpreadConstraints:
    - maxSkew: 1
      topologyKey: topology.kubernetes.io/zone
      whenUnsatisfiable: {{ ternary "DoNotSchedule" "ScheduleAnyway" (eq $values.antiAffinity "required") }}
      labelSelector: {matchLabels: {app.kubernetes.io/instance: {{ .root.Release.Name }}, app.kubernetes.io/component: registry}}
  {{- end }}
  affinity:
    {{- $apart := dict "topologyKey" "kubernetes.io/hostname" "labelSelector" (dict "matchLabels" (dict "app.kubernetes.io/instance" .root.Release.Name "app.kubernetes.io/component" "registry")) }}
    {{- if ne .kind "registry" }}
    {{- $apart = dict "topologyKey" "kubernetes.io/hostname" "labelSelector" (dict "matchExpressions" (list (dict "key" "photon/machine" "operator" "Exists") (dict "key" "photon/machine" "operator" "NotIn" "values" (list .datacentre)))) }}
    {{- end }}
    podAntiAffinity:
      {{- if eq $values.antiAffinity "required" }}
      requiredDuringSchedulingIgnoredDuringExecution: [{{ toJson $apart }}]
      {{- else }}
      preferredDuringSchedulingIgnoredDuringExecution: [{{ toJson (dict "weight" 100 "podAffinityTerm" $apart) }}]
      {{- end }}
    {{- if has "state" .mounts }}
    # Locks and state of a pipeline are those of one machine, and its claims are attached to one node.
    podAffinity:
      requiredDuringSchedulingIgnoredDuringExecution:
        - topologyKey: kubernetes.io/hostname
          labelSelector: {matchLabels: {app.kubernetes.io/instance: {{ .root.Release.Name }}, photon/machine: {{ quote .datacentre }}}}
    {{- end }}
  containers:
    - name: photon
      image: "{{ required "image.repository is missing: name where your nodes pull the image from" $values.image.repository }}{{ with $values.image.digest }}@{{ . }}{{ else }}:{{ $values.image.tag | default $.root.Chart.Version }}{{ if eq .kind "spark" }}-spark{{ end }}{{ end }}"
      imagePullPolicy: {{ $values.image.pullPolicy }}
      {{- if .replicas }}
      command:
        - /bin/sh
        - -euc
        - {{ printf "%s; exec photon serve registry \"$1\" --listen '%s:%d' --config /etc/photon/%s" (include "photon.replica" .replicas) $every (int .port) $values.deployment.config | quote }}
      {{- else if .arguments }}
      args: {{ toJson .arguments | replace "0.0.0.0" $every | replace "$(POD_IP)" (ternary "[$(POD_IP)]" "$(POD_IP)" $values.ipv6) }}
      {{- else }}
      command: [/bin/sleep, infinity]
      {{- end }}
      env:
        - {name: POD_IP, valueFrom: {fieldRef: {fieldPath: status.podIP}}}
        {{- if .replicas }}
        - {name: POD_INDEX, valueFrom: {fieldRef: {fieldPath: "metadata.labels['apps.kubernetes.io/pod-index']"}}}
        {{- end }}
        {{- if $values.deployment.tls }}
        - {name: PHOTON_HEALTH_TLS, value: /certs}
        {{- end }}
        {{- if eq .kind "spark" }}
        - {name: SPARK_LOCAL_HOSTNAME, value: {{ ternary "[$(POD_IP)]" "$(POD_IP)" $values.ipv6 | quote }}}
        {{- end }}
        {{- if eq .kind "operator" }}
        - {name: PHOTON_CONFIG, value: /etc/photon/{{ $values.deployment.config }}}
        - {name: PHOTON_AUDIT, value: /state/audit.jsonl}
        {{- end }}
        {{- range $values.extraEnv }}
        - {{ toJson . }}
        {{- end }}
      {{- if and $values.logs.envFrom (has .kind (list "datacentre" "eventstore" "verifier" "dispatcher" "spark" "operator")) }}
      envFrom: {{ toJson $values.logs.envFrom }}
      {{- else if and $values.sinks.envFrom (has .kind (list "sink" "compute" "datacentre" "verifier" "operator")) }}
      envFrom: {{ toJson $values.sinks.envFrom }}
      {{- end }}
      {{- if .port }}
      ports:
        {{- if ne .kind "status" }}
        - {name: photon, containerPort: {{ .port }}}
        {{- end }}
        {{- if .page }}
        - {name: page, containerPort: {{ .page.port }}}
        {{- end }}
      {{- end }}
      {{- $health := printf "exec photon health '%s:%d'" (ternary "[::1]" "127.0.0.1" $values.ipv6) (int .port) }}
      {{- if .replicas }}
      {{- $health = printf "%s; %s --identity \"registry-$1\"" (include "photon.replica" .replicas) $health }}
      {{- end }}
      {{- $serves := dict "exec" (dict "command" (list "/bin/sh" "-euc" $health)) }}
      {{- $lives := dict "exec" (dict "command" (list "/bin/sh" "-euc" (printf "%s --alive" $health))) }}
      {{- if eq .kind "status" }}
      {{- $serves = dict "httpGet" (dict "path" "/healthz" "port" "page") }}
      {{- $lives = $serves }}
      {{- else if eq .kind "operator" }}
      {{- $serves = dict "exec" (dict "command" (list "/bin/true")) }}
      {{- $lives = $serves }}
      {{- end }}
      # Each asks by a process of its own, so they are few once it is up. A replica without a majority answers and is not
      # ready, and no restart helps it: only a process that has not answered for 20 minutes, or does not serve an hour after
      # its start, is killed: it may have much to read first.
      startupProbe: {{ toJson (merge (dict "periodSeconds" 5 "timeoutSeconds" 20 "failureThreshold" 720) $serves) }}
      readinessProbe: {{ toJson (merge (dict "periodSeconds" 20 "timeoutSeconds" 20 "failureThreshold" 2) $serves) }}
      livenessProbe: {{ toJson (merge (dict "periodSeconds" 60 "timeoutSeconds" 30 "failureThreshold" 20) $lives) }}
      resources:
        requests: {cpu: {{ if eq .kind "operator" }}1m{{ else }}{{ get $values.cpu .kind | default $values.cpu.default }}{{ end }}, memory: {{ if eq .kind "operator" }}16Mi{{ else }}{{ $memory }}{{ end }}}
        limits: {cpu: {{ $values.cpuLimit | quote }}, memory: {{ $memory }}}
      securityContext:
        allowPrivilegeEscalation: false
        readOnlyRootFilesystem: true
        capabilities: {drop: [ALL]}
      volumeMounts:
        - {name: settings, mountPath: /etc/photon, readOnly: true}
        - {name: tmp, mountPath: /tmp}
        {{- if $values.deployment.tls }}
        - {name: certs, mountPath: /certs, readOnly: true}
        {{- end }}
        {{- range .mounts }}
        - {name: {{ . }}, mountPath: /{{ . }}{{ if has . (list "key" "logs") }}, readOnly: true{{ end }}}
        {{- end }}
        {{- range $more }}
        - {name: {{ .name }}, mountPath: {{ .mountPath }}, readOnly: true}
        {{- end }}
  volumes:
    - {name: settings, configMap: {name: {{ .root.Release.Name }}-settings{{ if not (has .kind (list "registry" "operator")) }}-{{ .datacentre }}{{ end }}}}
    - {name: tmp, emptyDir: {sizeLimit: {{ ternary "1Gi" "64Mi" (eq .kind "spark") }}}}
    {{- if $values.deployment.tls }}
    - name: certs
      projected:
        defaultMode: 0440
        sources:
          {{- range $number, $_ := .identities }}
          - secret:
              name: {{ $values.tls.prefix }}{{ . }}
              items: [{{ if not $number }}{key: ca.crt, path: ca.crt}, {{ end }}{key: tls.crt, path: {{ . }}.crt}, {key: tls.key, path: {{ . }}.key}]
          {{- end }}
    {{- end }}
    {{- if has "key" .mounts }}
    - {name: key, secret: {secretName: {{ $values.key.secret }}, defaultMode: 0440, items: [{key: key, path: key}]}}
    {{- end }}
    {{- if has "logs" .mounts }}
    - {name: logs, persistentVolumeClaim: {claimName: {{ $values.logs.claim }}{{ .datacentre }}}}
    {{- end }}
    {{- range $more }}
    - {{ toJson (merge (dict "name" .name) .source) }}
    {{- end }}
    {{- range list "state" "output" }}
    {{- if has . $.mounts }}
    - {name: {{ . }}, persistentVolumeClaim: {claimName: {{ $.root.Release.Name }}-{{ . }}-{{ $.datacentre }}}}
    {{- end }}
    {{- end }}
{{- end }}
