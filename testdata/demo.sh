#!/usr/bin/env bash
# What etcdctl-plus does, on a real Kubernetes registry: a snapshot that a real
# kube-apiserver filled, read as a file and live in a throw-away etcd. Nothing is
# left behind.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
gzip -dc "$here/kubernetes/snapshot.db.gz" > "$dir/snapshot.db"
cp "$here/kubernetes/encryption-config.yaml" "$dir/enc.yaml"
cd "$dir"
unset ETCDCTL_ENDPOINTS ETCDCTL_PLUS_ENDPOINTS

bold='' plain=''
[ -t 1 ] && [ -z "${NO_COLOR:-}" ] && bold=$'\033[1m' plain=$'\033[0m'
step() { printf '\n%s# %s%s\n' "$bold" "$1" "$plain"; }
run() { printf '$'; printf ' %q' "$@"; printf '\n'; "$@"; }

step "What takes the space?"
run etcdctl-plus inspect usage --db snapshot.db --top 8

step "Which Kubernetes objects are in the file?"
run etcdctl-plus registry get pods -A --db snapshot.db

step "A Secret, sealed by the API server: without the key its provider and key name, with it the fields, and the values only when asked for"
run etcdctl-plus registry get secrets -n team-a --db snapshot.db
run etcdctl-plus registry get secret gcm-a -n team-a --db snapshot.db --encryption-config enc.yaml -o yaml
run etcdctl-plus registry get secret gcm-a -n team-a --db snapshot.db --encryption-config enc.yaml --show-secrets -o 'jsonpath={.data}'

step "What changed in a Deployment?"
run etcdctl-plus inspect history /registry/deployments/shop/web --from-rev 1318 --diff --db snapshot.db

step "The same commands on a live cluster: a throw-away etcd, booted from a copy of the snapshot"
printf '$ etcdctl-plus sandbox --from snapshot.db -- bash\n'
etcdctl-plus sandbox --from snapshot.db -- bash -euo pipefail -c '
  run() { printf "$"; printf " %q" "$@"; printf "\n"; "$@"; }
  run etcdctl-plus registry ls | head -n 12
  run etcdctl-plus registry get deployment web -n shop -o "jsonpath={.spec.replicas} replicas, {.status.readyReplicas} ready"
  run etcdctl-plus get /registry/services/specs/default/kubernetes --decode -w yaml | head -n 20
  run etcdctl-plus put /demo/greeting hello
  run etcdctl-plus get /demo/ --prefix
'
printf '\nThe snapshot is as it was: %s\n' "$(sha256sum snapshot.db | cut -c1-16)…"
