{{- define "ringback.name" -}}
{{- .Release.Name | trunc 40 | trimSuffix "-" -}}
{{- end -}}

{{- define "ringback.selector" -}}
app.kubernetes.io/name: ringback
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end -}}

{{- define "ringback.labels" -}}
{{ include "ringback.selector" . }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version }}
{{- end -}}
