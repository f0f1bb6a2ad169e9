#!/bin/sh
# Installs or upgrades a release, one datacentre after the other: while parts of one are away, another joins.
#
#   deploy/helm/upgrade.sh RELEASE VALUES.yaml [FLAG OF helm upgrade]...
#
# HELM and KUBECTL are the programs; both take -n, --kube-context and --kubeconfig of the flags. Replicas are restarted one
# by one with the first datacentre. May be repeated.
set -eu
[ $# -ge 2 ] || { echo "upgrade: name the release and the values that photon up FILE --helm has made" >&2; exit 2; }
release=$1 values=$2
shift 2
chart=$(dirname "$0")/photon
names=$(sed -n '/^    "datacentres": \[/,/^    \]/ s/^ *"name": "\([a-z0-9-]*\)".*/\1/p' "$values")
[ -n "$names" ] || { echo "upgrade: $values: names no datacentre; make it by photon up FILE --helm $values" >&2; exit 2; }
kubectl=${KUBECTL:-kubectl} flag=
for each in "$@"; do
  case $flag$each in
    -n | --namespace | --kube-context | --kubeconfig) flag=$each= && continue ;;
    -n=* | --namespace=*) kubectl="$kubectl --namespace=${each#*=}" ;;
    --kube-context=*) kubectl="$kubectl --context=${each#*=}" ;;
    --kubeconfig=*) kubectl="$kubectl --kubeconfig=${each#*=}" ;;
  esac
  flag=
done
found() { $kubectl get statefulset,deployment -l "app.kubernetes.io/instance=$release$1" -o name; }
held=$names
for name in $names; do
  held=$(echo "$held" | grep -vx "$name" || true)
  hold=$(echo $held | sed 's/[^ ][^ ]*/"&"/g; s/ /,/g')
  ${HELM:-helm} upgrade --install "$release" "$chart" -f "$values" "$@" --set-json "hold=[$hold]" >/dev/null
  all=$(found "")
  own=$(found ",photon/datacentre=$name")
  replicas=$(found ",app.kubernetes.io/component=registry")
  [ -n "$all" ] || { echo "upgrade: kubectl sees nothing of $release: is it in another namespace?" >&2; exit 1; }
  for each in $own $replicas; do
    $kubectl rollout status "$each" --timeout 900s
  done
  echo "$name is up"
done
