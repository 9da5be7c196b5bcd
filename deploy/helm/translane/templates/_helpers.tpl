{{- define "translane.name" -}}
{{- default .Chart.Name .Values.nameOverride | trunc 63 | trimSuffix "-" -}}
{{- end }}

{{- define "translane.fullname" -}}
{{- $name := include "translane.name" . -}}
{{- if .Values.fullnameOverride -}}
{{- .Values.fullnameOverride | trunc 63 | trimSuffix "-" -}}
{{- else if contains $name .Release.Name -}}
{{- .Release.Name | trunc 63 | trimSuffix "-" -}}
{{- else -}}
{{- printf "%s-%s" .Release.Name $name | trunc 63 | trimSuffix "-" -}}
{{- end -}}
{{- end }}

{{- define "translane.selector" -}}
app.kubernetes.io/name: {{ include "translane.name" . }}
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end }}

{{- define "translane.labels" -}}
{{ include "translane.selector" . }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version | replace "+" "_" }}
{{- end }}

{{- define "translane.serviceAccount" -}}
{{- if .Values.serviceAccount.create -}}
{{- default (include "translane.fullname" .) .Values.serviceAccount.name -}}
{{- else -}}
{{- default "default" .Values.serviceAccount.name -}}
{{- end -}}
{{- end }}

{{- define "translane.image" -}}
{{- if .Values.image.digest -}}
{{- printf "%s@%s" .Values.image.repository .Values.image.digest -}}
{{- else -}}
{{- $tag := printf "%s-%s" .Chart.AppVersion (ternary "cuda" "cpu" .Values.gpu.enabled) -}}
{{- printf "%s:%s" .Values.image.repository (default $tag .Values.image.tag) -}}
{{- end -}}
{{- end }}

{{- /* The settings file. Strings, booleans and numbers of JSON are those of TOML. */ -}}
{{- define "translane.settings" -}}
{{- range $key, $value := omit .Values.settings "model_settings" }}
{{ $key }} = {{ toJson $value }}
{{- end }}
{{- range $model, $table := .Values.settings.model_settings }}

[model_settings.{{ toJson $model }}]
{{- range $key, $value := $table }}
{{ $key }} = {{ toJson $value }}
{{- end }}
{{- end }}
{{- end }}

{{- /* Kubernetes speaks no TLS in its gRPC probes, so the server has a port for health checks alone then. */ -}}
{{- define "translane.probe" -}}
{{- $grpc := dict "port" (ternary 50053 50051 (not (empty .root.Values.tls.secretName))) -}}
{{- with .service }}{{- $_ := set $grpc "service" . }}{{- end -}}
{{- $probe := merge (dict "grpc" $grpc "timeoutSeconds" 5) (fromYaml .pace) -}}
{{- toYaml (mergeOverwrite $probe (default dict (get .root.Values.probes .name))) }}
{{- end }}

{{- /* How fast pods come and go: a burst doubles them twice a minute, and a lull ends one pod a minute. */ -}}
{{- define "translane.scalingBehavior" -}}
scaleUp:
  stabilizationWindowSeconds: 0
  selectPolicy: Max
  policies:
    - {type: Percent, value: 100, periodSeconds: 30}
    - {type: Pods, value: 2, periodSeconds: 30}
scaleDown:
  stabilizationWindowSeconds: {{ .Values.autoscaling.scaleDownSeconds }}
  policies: [{type: Pods, value: 1, periodSeconds: 60}]
{{- end }}

{{- /* The series of this release's pods: another release's name may begin with the name of this one. */ -}}
{{- define "translane.seriesOfPods" -}}
namespace="{{ .Release.Namespace }}",pod=~"{{ include "translane.fullname" . }}-[a-z0-9]+-[a-z0-9]+"
{{- end }}

{{- /* Values that each are right, but not together. The schema cannot say these in clear words. */ -}}
{{- define "translane.check" -}}
{{- if and (eq .Values.models.source "image") (not .Values.models.image.reference) -}}
{{- fail "models.image.reference: name the image, because models.source is image" -}}
{{- end -}}
{{- if and (eq .Values.models.source "container") (not .Values.models.container.image) -}}
{{- fail "models.container.image: name the image, because models.source is container" -}}
{{- end -}}
{{- if eq .Values.models.source "url" -}}
{{- if not (or .Values.models.url.urls .Values.models.url.secretName) -}}
{{- fail "models.url.urls: name a model, because models.source is url" -}}
{{- end -}}
{{- if gt (len .Values.models.url.urls) 1 -}}
{{- range .Values.models.url.urls -}}
{{- if not (regexMatch "^[A-Za-z0-9._-]+=" .) -}}
{{- fail (printf "models.url.urls: give each of several models a name: NAME=%s" .) -}}
{{- end -}}
{{- end -}}
{{- end -}}
{{- if and .Values.networkPolicy.enabled (not .Values.networkPolicy.egress) -}}
{{- fail "models.source url takes networkPolicy.egress: without it the server reaches no models" -}}
{{- end -}}
{{- end -}}
{{- if and .Values.tls.clientCa (not .Values.tls.secretName) -}}
{{- fail "tls.clientCa takes tls.secretName: a server without TLS sees no certificates" -}}
{{- end -}}
{{- if and .Values.tls.metrics (not .Values.tls.secretName) -}}
{{- fail "tls.metrics takes tls.secretName: the metrics have the server's certificate" -}}
{{- end -}}
{{- if and .Values.service.headless (ne .Values.service.type "ClusterIP") -}}
{{- fail (printf "service.type %s takes service.headless=false: a headless service has no address" .Values.service.type) -}}
{{- end -}}
{{- if and .Values.gpu.enabled (eq .Values.models.source "bundled") -}}
{{- fail "gpu.enabled takes models of yours (models.source): the bundled model is int8, and runs on CPUs" -}}
{{- end -}}
{{- if and (eq (toString .Values.strategy.maxSurge) "0") (eq (toString .Values.strategy.maxUnavailable) "0") -}}
{{- fail "strategy: maxSurge and maxUnavailable are both 0, so no pod could ever be replaced" -}}
{{- end -}}
{{- if gt (int .Values.autoscaling.minReplicas) (int .Values.autoscaling.maxReplicas) -}}
{{- fail "autoscaling.minReplicas must be at most autoscaling.maxReplicas" -}}
{{- end -}}
{{- if and .Values.autoscaling.kedaPrometheus (gt (len (include "translane.fullname" .)) 46) -}}
{{- fail (printf "autoscaling.kedaPrometheus: shorten the name %s to 46 characters, because Kubernetes would cut it in names of pods" (include "translane.fullname" .)) -}}
{{- end -}}
{{- if and .Values.gateway.enabled (not .Values.gateway.parentRefs) -}}
{{- fail "gateway.parentRefs: name a gateway, because gateway.enabled is true" -}}
{{- end -}}
{{- if and .Values.gateway.httpHostnames (not .Values.http.enabled) -}}
{{- fail "gateway.httpHostnames takes http.enabled: without it nobody answers HTTP/JSON" -}}
{{- end -}}
{{- if and .Values.gateway.httpHostnames (not .Values.gateway.hostnames) -}}
{{- fail "gateway.httpHostnames takes gateway.hostnames: a route of gRPC for all names leaves none to HTTP/JSON" -}}
{{- end -}}
{{- range .Values.gateway.httpHostnames -}}
{{- if has . $.Values.gateway.hostnames -}}
{{- fail (printf "gateway.httpHostnames: %s is a name for gRPC, and gateways take a name for one kind of route" .) -}}
{{- end -}}
{{- end -}}
{{- if and .Values.prometheusRule.enabled (not (.Files.Get "files/rules.yaml")) -}}
{{- fail "prometheusRule.enabled: the chart has no files/rules.yaml" -}}
{{- end -}}
{{- end }}
