#!/bin/sh
# record.sh BIN OUT: runs a session of the programs in the directory BIN, in namespaces of its own, and writes the
# commands with their output to OUT. Needs root, unshare, ip and nft.
set -eu
export BIN="$(cd "$1" && pwd)" OUT="$(pwd)/$2" SELF="$(cd "$(dirname "$0")" && pwd)"
exec unshare --mount --net sh -eu -c '
	mount --make-rprivate /
	for dir in /run /etc/cni /var/lib/cni /opt/cni; do
		[ -d "$dir" ] || { echo "create $dir first: mkdir -p $dir" >&2; exit 1; }
		mount -t tmpfs tmpfs "$dir"
	done
	mkdir -p /etc/cni/net.d
	ip link set lo up
	ip link add up0 type veth peer name up1
	ip addr add 192.0.2.2/24 dev up0
	ip link set up0 up
	ip link set up1 up
	ip route add default via 192.0.2.1
	PATH="$BIN:$PATH"
	export CNI_PATH=/opt/cni/bin
	fairlead install --network my-net --subnet 10.20.0.0/16 >/dev/null
	: >"$OUT"
	while read -r line; do
		echo "$ $line" >>"$OUT"
		sh -c "$line" >>"$OUT" 2>&1 || true
	done <"$SELF/session.txt"
'
