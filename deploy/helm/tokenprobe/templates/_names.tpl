{{/* Name of everything: the release's, with the chart's unless it is in there. */}}
{{- define "tokenprobe.name" -}}
{{- if contains .Chart.Name .Release.Name -}}
{{- .Release.Name | trunc 50 | trimSuffix "-" -}}
{{- else -}}
{{- printf "%s-%s" .Release.Name .Chart.Name | trunc 50 | trimSuffix "-" -}}
{{- end -}}
{{- end -}}

{{- define "tokenprobe.selector" -}}
app.kubernetes.io/name: {{ .Chart.Name }}
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end -}}

{{- define "tokenprobe.labels" -}}
{{ include "tokenprobe.selector" . }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version | replace "+" "_" }}
{{- end -}}

{{/* ConfigMap with tokenprobe.toml; empty for the demo. */}}
{{- define "tokenprobe.configMap" -}}
{{- if .Values.existingConfigMap -}}
{{- .Values.existingConfigMap -}}
{{- else if .Values.config -}}
{{- include "tokenprobe.name" . -}}
{{- end -}}
{{- end -}}

{{/* Secret with environment variables; empty when none is wanted. */}}
{{- define "tokenprobe.secret" -}}
{{- if .Values.secret.existing -}}
{{- .Values.secret.existing -}}
{{- else if .Values.secret.values -}}
{{- include "tokenprobe.name" . -}}
{{- end -}}
{{- end -}}
