{{/* Values that this chart has and the last release's had not: `helm upgrade --reuse-values` leaves new ones out. A value
     that people have set to null stays out. Every template begins with it. */}}
{{- define "gpuwatch.whole" -}}
{{- if not (hasKey .Values "extraObjects") -}}
{{- include "gpuwatch.fill" (list .Values (.Files.Get "files/defaults.json" | fromJson)) -}}
{{- end -}}
{{- end -}}

{{- define "gpuwatch.fill" -}}
{{- $values := index . 0 -}}
{{- range $key, $default := index . 1 -}}
{{- if not (hasKey $values $key) -}}
{{- $_ := set $values $key $default -}}
{{- else if and (kindIs "map" $default) (kindIs "map" (get $values $key)) (not (has $key (list "settings" "nodeSelector" "resources"))) -}}
{{- include "gpuwatch.fill" (list (get $values $key) $default) -}}
{{- end -}}
{{- end -}}
{{- end -}}

{{/* The chart's name in labels. */}}
{{- define "gpuwatch.name" -}}
{{- default .Chart.Name .Values.nameOverride | trunc 63 | trimSuffix "-" -}}
{{- end -}}

{{/* The prefix of all names: the release's name, which holds the chart's name or gets it. */}}
{{- define "gpuwatch.fullname" -}}
{{- $name := default .Chart.Name .Values.nameOverride -}}
{{- if gt (len .Values.fullnameOverride) 50 -}}
{{- printf "%s-%s" (.Values.fullnameOverride | trunc 43 | trimSuffix "-") (sha256sum .Values.fullnameOverride | trunc 6) -}}
{{- else if .Values.fullnameOverride -}}
{{- .Values.fullnameOverride -}}
{{- else if contains $name .Release.Name -}}
{{- .Release.Name | trunc 50 | trimSuffix "-" -}}
{{- else -}}
{{- printf "%s-%s" .Release.Name $name | trunc 50 | trimSuffix "-" -}}
{{- end -}}
{{- end -}}

{{- define "gpuwatch.namespace" -}}
{{- default .Release.Namespace .Values.namespaceOverride -}}
{{- end -}}

{{/* Labels that select pods: they never change. Called with (list $ "agent"). */}}
{{- define "gpuwatch.selector" -}}
app.kubernetes.io/name: {{ include "gpuwatch.name" (index . 0) }}
app.kubernetes.io/instance: {{ (index . 0).Release.Name }}
app.kubernetes.io/component: {{ index . 1 }}
{{- end -}}

{{/* Labels of every object, with more of one; the chart's own win. Called with (list $ "agent" .Values.agent.labels). */}}
{{- define "gpuwatch.labels" -}}
{{- $root := index . 0 -}}
{{- $own := include "gpuwatch.selector" . | fromYaml -}}
{{- $_ := set $own "app.kubernetes.io/version" $root.Chart.AppVersion -}}
{{- $_ := set $own "app.kubernetes.io/managed-by" $root.Release.Service -}}
{{- $_ := set $own "helm.sh/chart" (printf "%s-%s" $root.Chart.Name $root.Chart.Version | replace "+" "_") -}}
{{- toYaml (mergeOverwrite (dict) $root.Values.commonLabels (default dict (index . 2)) $own) -}}
{{- end -}}

{{/* An object's metadata. Called with (list $ "agent" (dict "name" … "namespace" … "labels" … "annotations" … "keep" …));
     without a namespace it is the release's, and "-" is of the whole cluster. */}}
{{- define "gpuwatch.metadata" -}}
{{- $root := index . 0 -}}
{{- $about := index . 2 -}}
{{- $namespace := default (include "gpuwatch.namespace" $root) $about.namespace -}}
name: {{ $about.name }}
{{- if ne $namespace "-" }}
namespace: {{ $namespace }}
{{- end }}
labels: {{- include "gpuwatch.labels" (list $root (index . 1) $about.labels) | nindent 2 }}
{{- with mergeOverwrite (dict) $root.Values.commonAnnotations (default dict $about.keep) (default dict $about.annotations) }}
annotations: {{- toYaml . | nindent 2 }}
{{- end }}
{{- end -}}

{{/* An image's name. Called with (list $ .Values.agent.image). */}}
{{- define "gpuwatch.image" -}}
{{- $image := index . 1 -}}
{{- $name := $image.repository -}}
{{- with default $image.registry (index . 0).Values.global.imageRegistry -}}
{{- $name = printf "%s/%s" (trimSuffix "/" .) $name -}}
{{- end -}}
{{- if $image.digest -}}
{{- printf "%s@%s" $name $image.digest -}}
{{- else -}}
{{- printf "%s:%s" $name (default (index . 0).Chart.AppVersion $image.tag) -}}
{{- end -}}
{{- end -}}

{{- define "gpuwatch.pullSecrets" -}}
{{- with concat .Values.global.imagePullSecrets .Values.imagePullSecrets }}
imagePullSecrets:
  {{- range . }}
  - name: {{ kindIs "string" . | ternary . (get (kindIs "string" . | ternary dict .) "name") }}
  {{- end }}
{{- end }}
{{- end -}}

{{/* The service account's name. Called with (list $ "agent"). */}}
{{- define "gpuwatch.account" -}}
{{- $root := index . 0 -}}
{{- $account := (get $root.Values (index . 1)).serviceAccount -}}
{{- $made := printf "%s-%s" (include "gpuwatch.fullname" $root) (index . 1) -}}
{{- default ($account.create | ternary $made "default") $account.name -}}
{{- end -}}

{{/* Whether a key of agent's or controller's settings is set, there or by the environment. Called with
     (list $ "agent" "tls_certificate"). */}}
{{- define "gpuwatch.isSet" -}}
{{- $root := index . 0 -}}
{{- $part := index . 1 -}}
{{- $values := get $root.Values $part -}}
{{- $settings := eq $part "agent" | ternary $values.settings (default dict (get $values.settings "controller")) -}}
{{- if get $settings (index . 2) -}}yes{{- end -}}
{{- range $values.env -}}
{{- if eq .name (printf "GPUWATCH_%s__%s" (upper $part) (upper (index $ 2))) -}}yes{{- end -}}
{{- end -}}
{{- end -}}

{{/* A probe: what is asked, unless the values say it, and how often. Called with (list $ "agent" "livenessProbe" "/livez"). */}}
{{- define "gpuwatch.probe" -}}
{{- $root := index . 0 -}}
{{- $part := index . 1 -}}
{{- $values := get $root.Values $part -}}
{{- $probe := default dict (get $values (index . 2)) -}}
{{- if $probe.enabled }}
{{ index . 2 }}:
  {{- if not (or $probe.exec $probe.httpGet $probe.tcpSocket $probe.grpc) }}
  {{- $port := eq $part "agent" | ternary "metrics" "http" }}
  {{- if include "gpuwatch.isSet" (list $root $part "tls_client_ca") }}
  tcpSocket: {port: {{ $port }}}
  {{- else }}
  httpGet:
    path: {{ index . 3 }}
    port: {{ $port }}
    {{- if include "gpuwatch.isSet" (list $root $part "tls_certificate") }}
    scheme: HTTPS
    {{- end }}
    {{- $host := eq $part "agent" | ternary (get $values.settings "host") "" }}
    {{- if not (has $host (list nil "" "0.0.0.0" "::")) }}
    host: {{ $host | quote }}
    {{- end }}
  {{- end }}
  {{- end }}
  {{- toYaml (omit $probe "enabled") | nindent 2 }}
{{- end }}
{{- end -}}

{{/* What agent's and controller's pods have in common. Called with (list $ "agent"). */}}
{{- define "gpuwatch.pod" -}}
{{- $root := index . 0 -}}
{{- $values := get $root.Values (index . 1) -}}
serviceAccountName: {{ include "gpuwatch.account" . }}
terminationGracePeriodSeconds: {{ $values.terminationGracePeriodSeconds }}
dnsPolicy: {{ $values.dnsPolicy }}
{{- with $values.dnsConfig }}
dnsConfig: {{- toYaml . | nindent 2 }}
{{- end }}
{{- with $values.runtimeClassName }}
runtimeClassName: {{ . }}
{{- end }}
{{- with $values.priorityClassName }}
priorityClassName: {{ . }}
{{- end }}
{{- include "gpuwatch.pullSecrets" $root }}
{{- with $values.nodeSelector }}
nodeSelector: {{- toYaml . | nindent 2 }}
{{- end }}
{{- with $values.tolerations }}
tolerations: {{- toYaml . | nindent 2 }}
{{- end }}
{{- with $values.podSecurityContext }}
securityContext: {{- toYaml . | nindent 2 }}
{{- end }}
{{- with $values.initContainers }}
initContainers: {{- toYaml . | nindent 2 }}
{{- end }}
{{- end -}}

{{/* What their containers have in common. Called with (list $ "agent"). */}}
{{- define "gpuwatch.container" -}}
{{- $root := index . 0 -}}
{{- $values := get $root.Values (index . 1) -}}
name: {{ index . 1 }}
image: {{ include "gpuwatch.image" (list $root $values.image) }}
imagePullPolicy: {{ $values.image.pullPolicy }}
args: {{- toYaml (prepend $values.extraArgs (index . 1)) | nindent 2 }}
{{- with $values.envFrom }}
envFrom: {{- toYaml . | nindent 2 }}
{{- end }}
{{- with $values.securityContext }}
securityContext: {{- toYaml . | nindent 2 }}
{{- end }}
resources: {{- toYaml $values.resources | nindent 2 }}
{{- include "gpuwatch.probe" (list $root (index . 1) "startupProbe" "/livez") }}
{{- include "gpuwatch.probe" (list $root (index . 1) "livenessProbe" "/livez") }}
{{- include "gpuwatch.probe" (list $root (index . 1) "readinessProbe" "/readyz") }}
{{- end -}}

{{/* Labels and annotations of their pods. Called with (list $ "agent" (sha256sum of the settings) port). */}}
{{- define "gpuwatch.podMetadata" -}}
{{- $root := index . 0 -}}
{{- $values := get $root.Values (index . 1) -}}
{{- $own := dict "checksum/settings" (index . 2) "prometheus.io/scrape" "true" "prometheus.io/port" (toString (index . 3)) -}}
labels: {{- include "gpuwatch.labels" (list $root (index . 1) $values.podLabels) | nindent 2 }}
annotations: {{- toYaml (mergeOverwrite (dict) $root.Values.commonAnnotations $own $values.podAnnotations) | nindent 2 }}
{{- end -}}

{{/* Who may reach a port. Called with (list $ "agent" "metrics"). */}}
{{- define "gpuwatch.networkPolicy" -}}
{{- $root := index . 0 -}}
{{- $policy := (get $root.Values (index . 1)).networkPolicy -}}
{{- $own := include "gpuwatch.selector" . | fromYaml -}}
---
apiVersion: networking.k8s.io/v1
kind: NetworkPolicy
metadata: {{- include "gpuwatch.metadata" (list $root (index . 1) (dict "name" (printf "%s-%s" (include "gpuwatch.fullname" $root) (index . 1)))) | nindent 2 }}
spec:
  podSelector:
    matchLabels: {{- toYaml $own | nindent 6 }}
  policyTypes: [Ingress{{ if $policy.egress }}, Egress{{ end }}]
  ingress:
    - from:
        # The release's own: the controller, and `helm test`.
        - podSelector:
            matchLabels: {{- toYaml (omit $own "app.kubernetes.io/component") | nindent 14 }}
        {{- with concat $policy.from $policy.extraFrom }}
        {{- toYaml . | nindent 8 }}
        {{- end }}
      ports:
        - {protocol: TCP, port: {{ index . 2 }}}
  {{- with $policy.egress }}
  egress: {{- toYaml . | nindent 4 }}
  {{- end }}
{{- end -}}

{{/* gpuwatch.yaml of the agents: the chart's own keys first, so that a value of `settings` wins. */}}
{{- define "gpuwatch.agentSettings" -}}
{{- if not (or .Values.agent.insecure .Values.agent.secretName .Values.agent.extraVolumeMounts) -}}
{{- fail "agent.insecure is false: set agent.secretName and agent.settings (certificate, users), or agent.insecure=true if everybody who reaches a node may read its metrics" -}}
{{- end -}}
{{- $own := dict "host" "0.0.0.0" "port" (int .Values.agent.port) "insecure" .Values.agent.insecure -}}
{{- if .Values.agent.podResources.enabled -}}
{{- $_ := set $own "attribution" (dict "pod_resources_socket" "/run/gpuwatch-pods/list") -}}
{{- end -}}
{{- toYaml (dict "agent" (mergeOverwrite $own .Values.agent.settings)) -}}
{{- end -}}

{{/* Not empty where the ledger is a database: in the settings, or by the environment's variables. */}}
{{- define "gpuwatch.sharedLedger" -}}
{{- $ledger := default dict .Values.controller.settings.ledger -}}
{{- if or $ledger.url $ledger.url_file -}}yes{{- end -}}
{{- range .Values.controller.env -}}
{{- if has .name (list "GPUWATCH_LEDGER__URL" "GPUWATCH_LEDGER__URL_FILE") -}}yes{{- end -}}
{{- end -}}
{{- if .Values.controller.envFrom -}}yes{{- end -}}
{{- end -}}

{{- define "gpuwatch.controllerSettings" -}}
{{- if and (gt (int .Values.controller.replicas) 1) .Values.controller.persistence.enabled -}}
{{- fail "controller.replicas is above 1 and the ledger is a file: set controller.persistence.enabled=false and a PostgreSQL database in controller.settings.ledger" -}}
{{- end -}}
{{- if not (or .Values.controller.insecure .Values.controller.secretName .Values.controller.extraVolumeMounts) -}}
{{- fail "controller.insecure is false: set controller.secretName and controller.settings (certificate, users), or controller.insecure=true if everybody in the cluster may read its page" -}}
{{- end -}}
{{- $server := dict "host" "0.0.0.0" "port" (int .Values.controller.service.port) "insecure" .Values.controller.insecure -}}
{{- $hosts := list -}}
{{- if .Values.controller.ingress.enabled -}}
{{- range .Values.controller.ingress.hosts -}}{{- $hosts = append $hosts .host -}}{{- end -}}
{{- end -}}
{{- with $hosts -}}{{- $_ := set $server "allowed_hosts" . -}}{{- end -}}
{{- $own := dict "controller" $server -}}
{{- if .Values.controller.persistence.enabled -}}
{{- $_ := set $own "ledger" (dict "path" "/var/lib/gpuwatch/ledger.db") -}}
{{- else if and (gt (int .Values.controller.replicas) 1) (not (include "gpuwatch.sharedLedger" .)) -}}
{{- fail "controller.replicas is above 1: set controller.settings.ledger.url or url_file, a PostgreSQL database that all of them share" -}}
{{- end -}}
{{- if .Values.controller.kubernetes.enabled -}}
{{- $name := .Values.controller.kubernetes.name -}}
{{- $clusters := dict "in_cluster" true "name" $name -}}
{{- range $key, $value := .Values.controller.settings.kubernetes -}}
{{- if kindIs "map" $value -}}{{- $clusters = dict $name (dict "in_cluster" true) -}}{{- end -}}
{{- end -}}
{{- $_ := set $own "kubernetes" $clusters -}}
{{- end -}}
{{- toYaml (mergeOverwrite $own .Values.controller.settings) -}}
{{- end -}}
