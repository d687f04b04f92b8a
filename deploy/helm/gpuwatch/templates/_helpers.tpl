{{/* The prefix of all names: the release's name, which holds the chart's name or gets it. */}}
{{- define "gpuwatch.fullname" -}}
{{- if contains .Chart.Name .Release.Name -}}
{{- .Release.Name | trunc 50 | trimSuffix "-" -}}
{{- else -}}
{{- printf "%s-%s" .Release.Name .Chart.Name | trunc 50 | trimSuffix "-" -}}
{{- end -}}
{{- end -}}

{{/* Labels that select pods: they never change. Called with (list $ "agent"). */}}
{{- define "gpuwatch.selector" -}}
app.kubernetes.io/name: {{ (index . 0).Chart.Name }}
app.kubernetes.io/instance: {{ (index . 0).Release.Name }}
app.kubernetes.io/component: {{ index . 1 }}
{{- end -}}

{{/* Labels of every object. Called with (list $ "agent"). */}}
{{- define "gpuwatch.labels" -}}
{{- $root := index . 0 -}}
{{ include "gpuwatch.selector" . }}
app.kubernetes.io/version: {{ $root.Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ $root.Release.Service }}
helm.sh/chart: {{ printf "%s-%s" $root.Chart.Name $root.Chart.Version | replace "+" "_" }}
{{- with $root.Values.commonLabels }}
{{ toYaml . }}
{{- end }}
{{- end -}}

{{/* An image's name. Called with (list $ .Values.agent.image). */}}
{{- define "gpuwatch.image" -}}
{{- $image := index . 1 -}}
{{- if $image.digest -}}
{{- printf "%s@%s" $image.repository $image.digest -}}
{{- else -}}
{{- printf "%s:%s" $image.repository (default (index . 0).Chart.AppVersion $image.tag) -}}
{{- end -}}
{{- end -}}

{{/* What both containers are allowed: nothing. */}}
{{- define "gpuwatch.hardened" -}}
readOnlyRootFilesystem: true
allowPrivilegeEscalation: false
capabilities: {drop: [ALL]}
{{- end -}}

{{- define "gpuwatch.podSecurity" -}}
runAsNonRoot: true
runAsUser: 10001
runAsGroup: 10001
fsGroup: 10001
seccompProfile: {type: RuntimeDefault}
{{- end -}}

{{/* gpuwatch.yaml of the agents: the chart's own keys first, so that a value of `settings` wins. */}}
{{- define "gpuwatch.agentSettings" -}}
{{- if not (or .Values.agent.insecure .Values.agent.secretName) -}}
{{- fail "agent.insecure is false: set agent.secretName and agent.settings (certificate, users), or agent.insecure=true if everybody who reaches a node may read its metrics" -}}
{{- end -}}
{{- $own := dict "host" "0.0.0.0" "port" (int .Values.agent.port) "insecure" .Values.agent.insecure -}}
{{- toYaml (dict "agent" (mergeOverwrite $own .Values.agent.settings)) -}}
{{- end -}}

{{/* Not empty where the ledger is a database: in the settings, or by the environment's variables. */}}
{{- define "gpuwatch.sharedLedger" -}}
{{- $ledger := default dict .Values.controller.settings.ledger -}}
{{- if or $ledger.url $ledger.url_file -}}yes{{- end -}}
{{- range .Values.controller.env -}}
{{- if has .name (list "GPUWATCH_LEDGER__URL" "GPUWATCH_LEDGER__URL_FILE") -}}yes{{- end -}}
{{- end -}}
{{- end -}}

{{- define "gpuwatch.controllerSettings" -}}
{{- if and (gt (int .Values.controller.replicas) 1) .Values.controller.persistence.enabled -}}
{{- fail "controller.replicas is above 1 and the ledger is a file: set controller.persistence.enabled=false and a PostgreSQL database in controller.settings.ledger" -}}
{{- end -}}
{{- if not (or .Values.controller.insecure .Values.controller.secretName) -}}
{{- fail "controller.insecure is false: set controller.secretName and controller.settings (certificate, users), or controller.insecure=true if everybody in the cluster may read its page" -}}
{{- end -}}
{{- $own := dict "controller" (dict "host" "0.0.0.0" "port" (int .Values.controller.service.port) "insecure" .Values.controller.insecure) -}}
{{- if .Values.controller.persistence.enabled -}}
{{- $_ := set $own "ledger" (dict "path" "/var/lib/gpuwatch/ledger.db") -}}
{{- else if and (gt (int .Values.controller.replicas) 1) (not (include "gpuwatch.sharedLedger" .)) -}}
{{- fail "controller.replicas is above 1: set controller.settings.ledger.url or url_file, a PostgreSQL database that all of them share" -}}
{{- end -}}
{{- if .Values.controller.kubernetes.enabled -}}
{{- $_ := set $own "kubernetes" (dict "in_cluster" true "name" .Values.controller.kubernetes.name) -}}
{{- end -}}
{{- toYaml (mergeOverwrite $own .Values.controller.settings) -}}
{{- end -}}
