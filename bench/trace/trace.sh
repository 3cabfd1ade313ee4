#!/bin/sh
# What the kernel does in an ADD and a DEL, and for how long: ftrace's function
# graph of chosen functions, in the calls of the plugin's process alone. Run where
# the kernel has that tracer (make trace does, in a guest).
#
#	sh bench/trace/trace.sh DIRECTORY-OF-PLUGINS [ROUNDS]
set -eu
[ -n "${TRACE_INSIDE-}" ] || exec unshare -m env TRACE_INSIDE=1 sh "$0" "$@" # mounts of its own
plugins=$1 rounds=${2:-20}
t=/sys/kernel/tracing
[ -d $t/events ] || mount -t tracefs tracefs $t
grep -q function_graph $t/available_tracers || { echo "this kernel has no function graph tracer" >&2; exit 1; }

# One host and one container, in memory.
mount -t tmpfs tmpfs /run
ip netns add host; ip netns add pod
export CNI_PATH="$plugins" CNI_CONTAINERID=traced CNI_NETNS=/run/netns/pod CNI_IFNAME=eth0

functions="rtnetlink_rcv_msg rtnl_newlink rtnl_dellink rtnl_setlink rtnl_getlink do_setlink register_netdevice device_add kobject_uevent_env br_add_if
	inetdev_event addrconf_notify __dev_open netdev_run_todo rcu_barrier synchronize_net synchronize_rcu synchronize_rcu_expedited
	inet_rtm_newaddr inet6_rtm_newaddr inet_rtm_newroute inet6_rtm_newroute nfnetlink_rcv nf_tables_commit tc_modify_qdisc tc_new_tfilter
	proc_sys_call_handler devinet_sysctl_register addrconf_sysctl_register do_renameat2 do_unlinkat do_sys_openat2 do_exit load_elf_binary"
echo nop >$t/current_tracer
echo 1 >$t/options/function-fork
echo 1 >$t/options/funcgraph-tail
echo 8192 >$t/buffer_size_kb

operation() { # COMMAND TYPE FILE
	CNI_COMMAND=$1 nsenter --net=/run/netns/host "$plugins/$2" <"$3" >/dev/null
}

# traced COMMAND TYPE FILE: with the tracer on, this shell's children only
traced() {
	sh -c 'echo $$ >'$t'/set_ftrace_pid; echo 1 >'$t'/tracing_on; CNI_COMMAND=$0 exec nsenter --net=/run/netns/host "$1" <"$2" >/dev/null' "$1" "$plugins/$2" "$3"
	echo 0 >$t/tracing_on
}

# report TITLE: each function's calls and time in one operation, nested ones within their callers
report() {
	echo
	echo "$1: calls and microseconds in one, of the kernel's functions (each includes those it calls)"
	awk -v rounds="$rounds" '
		/\*\/$/ || /\);$/ {
			line = $0; sub(/ \[[a-z_]+\]/, "", line); name = "" # the module that it is in
			if (match(line, /\/\* [a-z0-9_]+ \*\//)) name = substr(line, RSTART + 3, RLENGTH - 6)
			else if (match(line, /[a-z0-9_]+\(\);/)) name = substr(line, RSTART, RLENGTH - 3)
			if (name == "" || !match(line, /[0-9.]+ us/)) next
			n[name]++; us[name] += substr(line, RSTART, RLENGTH - 3)
		}
		END { for (f in n) printf "%-28s %6.1f %10.0f\n", f, n[f] / rounds, us[f] / rounds }' /run/trace.txt | sort -k3 -rn
}

trace() { # TITLE TYPE CONFIGURATION
	printf '%s' "$3" >/run/conf
	operation ADD "$2" /run/conf; operation DEL "$2" /run/conf # what is shared exists from here on, modules too
	: >$t/set_ftrace_filter
	for f in $functions; do
		echo "$f" >>$t/set_ftrace_filter 2>/dev/null || true # some are inlined on some kernels
	done
	for verb in ADD DEL; do
		: >/run/trace.txt
		for _ in $(seq "$rounds"); do
			[ $verb = ADD ] || operation ADD "$2" /run/conf
			echo 0 >$t/tracing_on; echo function_graph >$t/current_tracer; : >$t/trace
			traced $verb "$2" /run/conf
			cat $t/trace >>/run/trace.txt
			echo nop >$t/current_tracer
			[ $verb = DEL ] || operation DEL "$2" /run/conf
		done
		report "$1, $verb"
		[ -z "${TRACE_KEEP-}" ] || cp /run/trace.txt "$TRACE_KEEP/$2-$verb.txt"
	done
}

ipam='"ipam": {"type": "host-local", "dataDir": "/run/ipam", "subnet": "10.1.0.0/16"}'
trace "bridge + host-local + masquerade" bridge '{"cniVersion": "1.0.0", "name": "net", "type": "bridge", "bridge": "cni0", "isGateway": true, "ipMasq": true, '"$ipam"'}'
trace "ptp + host-local" ptp '{"cniVersion": "1.0.0", "name": "p", "type": "ptp", '"$ipam"'}'
ip netns del pod; ip netns del host
