#!/bin/sh
# Installs or upgrades a release, one datacentre after the other: while parts of one are away, another joins.
#
#   deploy/helm/upgrade.sh RELEASE VALUES.yaml [FLAG OF helm upgrade]...
#
# HELM and KUBECTL are the programs. Replicas are restarted one by one with the first datacentre. May be repeated.
set -eu
[ $# -ge 2 ] || { echo "upgrade: name the release and the values that photon up FILE --helm has made" >&2; exit 2; }
release=$1 values=$2
shift 2
chart=$(dirname "$0")/photon
names=$(sed -n '/^  datacentres:/,/^  [a-z]/ s/.*{name: \([a-z0-9-]*\),.*/\1/p' "$values")
[ -n "$names" ] || { echo "upgrade: $values: names no datacentre; make it by photon up FILE --helm $values" >&2; exit 2; }
held=$names
for name in $names; do
  held=$(echo "$held" | grep -vx "$name" || true)
  hold=$(echo $held | sed 's/[^ ][^ ]*/"&"/g; s/ /,/g')
  ${HELM:-helm} upgrade --install "$release" "$chart" -f "$values" "$@" --set-json "hold=[$hold]" >/dev/null
  for kind in statefulset deployment; do
    for each in $(${KUBECTL:-kubectl} get $kind -l "app.kubernetes.io/instance=$release,photon/datacentre=$name" -o name) \
      $(${KUBECTL:-kubectl} get $kind -l "app.kubernetes.io/instance=$release,app.kubernetes.io/component=registry" -o name)
    do
      ${KUBECTL:-kubectl} rollout status "$each" --timeout 900s
    done
  done
  echo "$name is up"
done
