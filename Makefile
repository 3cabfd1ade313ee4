# Fairlead's targets. `make help` lists them.

BUILD := CGO_ENABLED=0 go build -trimpath -ldflags "-s -w"
SUDO := $(shell [ "$$(id -u)" = 0 ] || echo sudo)
N ?= 60
# The tag of this commit, or a development version with the number of commits.
VERSION ?= $(or $(patsubst v%,%,$(shell git describe --tags --exact-match --match 'v*' 2>/dev/null)),0.1.0-dev.$(shell git rev-list --count HEAD))

STATICCHECK := honnef.co/go/tools/cmd/staticcheck@v0.7.0

# Programs that the targets run, and the Debian package of each.
CLUSTER_NEEDS := ip:iproute2 nft:nftables ping:iputils-ping nsenter:util-linux curl:curl etcd:etcd-server
DEMO_NEEDS := ip:iproute2 nft:nftables ping:iputils-ping dnsmasq:dnsmasq-base
E2E_NEEDS := containerd:containerd runc:runc podman:podman conmon:conmon
TEST_NEEDS := $(DEMO_NEEDS) iptables:iptables conntrack:conntrack nsenter:util-linux sysctl:procps \
	kea-dhcp4:kea-dhcp4-server kea-dhcp6:kea-dhcp6-server firewalld:firewalld dbus-daemon:dbus ethtool:ethtool \
	ovs-vswitchd:openvswitch-switch iperf3:iperf3 strace:strace jq:jq systemd-analyze:systemd setpriv:util-linux bird:bird2 ipvsadm:ipvsadm zsh:zsh fish:fish $(CLUSTER_NEEDS) $(E2E_NEEDS)
BENCH_NEEDS := $(DEMO_NEEDS) iptables:iptables nsenter:util-linux ovs-vswitchd:openvswitch-switch

DOCKER_NEEDS := dockerd:docker.io containerd:containerd runc:runc docker-compose:docker-compose busybox:busybox-static curl:curl

K8S_NEEDS := etcd:etcd-server
SUITE_NEEDS := dig:bind9-dnsutils nc:netcat-openbsd netstat:net-tools busybox:busybox-static wget:wget

VM_NEEDS := qemu-system-x86_64:qemu-system-x86 depmod:kmod xz:xz-utils

# The features that tests needed, and where they ran: see kernel/kerneltest.
FEATURES := $(CURDIR)/bin/features

.DEFAULT_GOAL := help
.PHONY: help build demo demo-cluster test test-vm race stress mutate churn churn-cluster soak crash fuzz bench bench-quick bench-vm bench-path bench-hosts bench-scale bench-flannel test-flannel trace leases image pictures release test-release vulncheck compat e2e e2e-start e2e-docker e2e-docker-vm e2e-kubernetes e2e-pod-networks e2e-pod-networks-vm test-etcd test-kubernetes crash-kubernetes bench-kubernetes bench-pods conformance conformance-sctp e2e-flannel kubernetes kubernetes-down cyclonus cyclonus-sctp policy-versions network-policy-api network-policy-api-cluster network-policy-api-sctp bench-policy clean

help: ## list these targets
	@awk -F ':.*## ' '/^[a-z0-9-]+:.*## / { printf "  make %-14s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

build: ## build bin/fairlead, bin/fairlead-cni and bin/cni/, a link for each plugin
	@mkdir -p bin/cni
	$(BUILD) -o bin/ ./cmd/fairlead ./cmd/fairlead-cni
	@# A copy starts 0.3 ms sooner than what the linker wrote, page by page, into the page cache.
	@for b in fairlead fairlead-cni; do cp bin/$$b bin/$$b~ && mv bin/$$b~ bin/$$b; done
	@find bin/cni -type l -delete
	@bin/fairlead-cni --list | while read -r name; do ln -s ../fairlead-cni "bin/cni/$$name"; done
	@ln -s ../fairlead bin/cni/ovs

image: build ## bin/fairlead-image.tar, an OCI image for contrib/kubernetes: ctr images import, podman load
	go run ./contrib/image -o bin/fairlead-image.tar bin/fairlead bin/fairlead-cni

release: ## build the release VERSION in bin/release: tar.gz, deb, rpm, image, bill of materials (ARCHS=amd64 for one architecture)
	go run -C contrib/release . -version '$(VERSION)' -arch '$(or $(ARCHS),amd64,arm64)'

test-release: ## install a release into fresh Debian roots, run the quick start and a tutorial there, remove it and compare (needs root)
	@sh test/install-packages $(TEST_NEEDS) mmdebstrap:mmdebstrap rpm:rpm
	go run -C contrib/release . -version '$(VERSION)' -arch "$$(go env GOARCH)" -o $(CURDIR)/bin/test-release
	FAIRLEAD_RELEASE=$(CURDIR)/bin/test-release go test -count=1 -v -timeout 20m ./test/release

demo: build ## show containers on networks, in a host of its own: safe on any machine (needs root)
	@sh test/install-packages $(DEMO_NEEDS)
	@$(SUDO) bin/fairlead demo

demo-cluster: build ## show containers on three hosts, by each backend, with agents killed and the store stopped: namespaces, safe on any machine (needs root)
	@sh test/install-packages $(CLUSTER_NEEDS)
	@$(SUDO) bin/fairlead demo-cluster

# All programs are built without cgo, as for users: with one setting, each package is compiled once.
test stress: export CGO_ENABLED := 0
test: ## run the fast tests, in under 25 minutes (needs root: network namespaces)
	@sh test/install-packages $(TEST_NEEDS)
	@bad=$$(gofmt -l .); [ -z "$$bad" ] || { echo "not formatted: $$bad"; exit 1; }
	go vet ./...
	go run $(STATICCHECK) ./...
	@mkdir -p bin; rm -f $(FEATURES)
	FAIRLEAD_FEATURES=$(FEATURES) go test -vet=off -ldflags="-s -w" -count=1 -parallel 6 -timeout 20m ./...
	@test/fuzz 500x
	@sh test/install-packages $(VM_NEEDS)
	go run ./test/vm -kernel 6.12 -features $(FEATURES) -lacking

test-vm: ## run tests of features that this kernel may lack in Debian's kernels 6.1 and 6.12, emulated (K=6.12 for one; needs root)
	@sh test/install-packages $(TEST_NEEDS) $(VM_NEEDS)
	go run ./test/vm $(if $(K),-kernel $(K))

race: ## run the tests under the race detector (several minutes)
	@sh test/install-packages $(TEST_NEEDS) 'gcc:gcc libc6-dev'
	CGO_ENABLED=1 go test -race -timeout 60m ./...

stress: ## run each package's tests RUNS=30 times while stress-ng keeps all processors busy (PACKAGE=./kernel/... for some; hours; resumes; needs root)
	@sh test/install-packages $(TEST_NEEDS) stress-ng:stress-ng
	@test/stress $(or $(RUNS),30) $(PACKAGE)

mutate: ## plant N=150 small faults, one at a time, and count those that the tests catch (SEED=1, DEPTH=1 for each package's own tests; hours; resumes; needs root)
	@sh test/install-packages $(TEST_NEEDS)
	go run ./test/mutate -n $(if $(filter-out file,$(origin N)),$(N),150) -seed $(or $(SEED),1) -depth $(or $(DEPTH),3)

churn: ## run ADD, CHECK, DEL and GC at random for T=3m, 64 at once, with kills, next to a model (needs root)
	@sh test/install-packages $(TEST_NEEDS)
	FAIRLEAD_CHURN=$(or $(T),3m) go test -count=1 -v -timeout 60m ./test/churn

soak: ## run plugins inside one process for T=10m: 64 goroutines, cancellations, panics, forged replies (needs root)
	@sh test/install-packages $(TEST_NEEDS)
	FAIRLEAD_SOAK=$(or $(T),10m) go test -count=1 -v -timeout 120m -run 'TestSoak$$' ./plugins

churn-cluster: ## allocate addresses on ten nodes at random for T=3m next to a model, with kills (needs root)
	@sh test/install-packages $(TEST_NEEDS)
	FAIRLEAD_CHURN=$(or $(T),3m) go test -count=1 -v -timeout 60m -run '^TestChurnCluster$$' ./plugins/ipam

bench-scale: ## agents of a simulated cluster of 5,000 nodes, 1,000 peers in a kernel, bursts and churn of addresses: docs/scale.md (a quarter of an hour; needs root)
	@sh test/install-packages $(TEST_NEEDS)
	FAIRLEAD_SCALE=1 go test -count=1 -v -timeout 30m -run '^TestScale' ./agent ./kernel
	FAIRLEAD_BURSTS=5 go test -count=1 -v -timeout 30m -run 'Burst$$' ./plugins/ipam
	FAIRLEAD_CHURN=1m go test -count=1 -v -timeout 30m -run '^TestChurnCluster$$' ./plugins/ipam

fuzz: ## run every fuzz target for FUZZTIME (20s each)
	@test/fuzz $(or $(FUZZTIME),20s)

bench: ## time Fairlead, the reference plugins and the floor in turn, N=60 rounds; writes docs/benchmarks.md (half an hour; needs root)
	@sh test/install-packages $(BENCH_NEEDS)
	@mkdir -p bin
	go run ./bench -rounds $(N) -write docs -json bin/bench.json -also bin/bench-vm.json

bench-quick: ## the same in some minutes, in the terminal only (CASE=expression for some cases, SIDES=floor for one side)
	@sh test/install-packages $(BENCH_NEEDS)
	go run ./bench -quick -case '$(CASE)' -sides '$(SIDES)'

bench-vm: ## the plugins whose device types the kernel here may lack, in Debian's 6.12, emulated; make bench shows its figures
	@sh test/install-packages $(BENCH_NEEDS) $(VM_NEEDS)
	go run ./bench -build -programs bin/bench
	go run ./test/vm -kernel 6.12 -write bin -exec 'bin/bench/bench -programs bin/bench -rounds 10 -limit 60s -json bin/bench-vm.json -case ^plugins:.(bridge|ipvlan|vlan|dummy|vrf)$$'

bench-path: ## measure throughput and latency on one host; writes docs/datapath.md (needs root)
	@sh test/install-packages $(TEST_NEEDS)
	go run ./bench/path -write docs/datapath.md

bench-hosts: ## measure throughput and latency between hosts for each backend; writes docs/hosts.md (needs root)
	@sh test/install-packages $(TEST_NEEDS)
	go run ./bench/path -hosts -n 24 -write docs/hosts.md

test-flannel: ## switch hosts from flanneld to the agent and back while packets flow (builds flanneld once; needs root)
	@sh test/install-packages $(TEST_NEEDS)
	FAIRLEAD_FLANNELD=1 go test -count=1 -v -timeout 20m -run Flannel ./test/cluster

bench-flannel: ## time the agent and flanneld in turn, with 3, 50 and 200 nodes; writes docs/flannel.md (builds flanneld once; needs root)
	@sh test/install-packages $(TEST_NEEDS)
	go run ./bench/flannel -write docs/flannel.md

trace: build ## what the kernel does in an ADD and a DEL, function by function, N=20 rounds in a guest's kernel (needs root)
	@sh test/install-packages $(TEST_NEEDS) $(VM_NEEDS)
	go run ./test/vm -kernel 6.12 -exec "sh bench/trace/trace.sh $(CURDIR)/bin/cni $(if $(filter-out file,$(origin N)),$(N),20)"

leases: ## get, take up, renew and release N=2000 DHCP leases at once from one daemon (needs root)
	@sh test/install-packages $(TEST_NEEDS)
	FAIRLEAD_LEASES=$(if $(filter-out file,$(origin N)),$(N),2000) go test -count=1 -v -run TestManyLeases ./plugins/ipam/dhcpd

pictures: build ## draw docs/pictures again: architecture, packet paths, the map of a cluster, a recorded session (needs root)
	@sh test/install-packages $(DEMO_NEEDS) jq:jq
	@mkdir -p /etc/cni /var/lib/cni /opt/cni
	$(SUDO) sh contrib/pictures/record.sh bin contrib/pictures/session.rec
	go run ./contrib/pictures -session contrib/pictures/session.rec

vulncheck: ## look for known vulnerabilities in Go and in modules (needs vuln.go.dev: docs/security.md)
	@sh test/vulncheck

crash: ## kill every plugin, or fail a call, at each system call in turn; writes docs/reliability.md (hours; half an hour with FAIRLEAD_SAMPLE=150; resumes)
	@sh test/install-packages $(TEST_NEEDS) $(VM_NEEDS)
	@mkdir -p bin/crash
	FAIRLEAD_CRASH=$(CURDIR)/bin/crash/results go test -count=1 -timeout 6h -v -run '^TestAllPoints$$' ./test/crash
	CGO_ENABLED=0 go test -c -o bin/crash/crash.test ./test/crash
	CGO_ENABLED=0 go build -o bin/crash/program ./internal/plugintest/program
	go run ./test/vm -kernel 6.12 -write bin/crash -timeout 40m -exec "env FAIRLEAD_COMMIT=$$(grep -o '"Commit":"[^"]*"' bin/crash/results | tail -n 1 | cut -d '"' -f 4) FAIRLEAD_TEST_PROGRAM=$(CURDIR)/bin/crash/program FAIRLEAD_CRASH=$(CURDIR)/bin/crash/results FAIRLEAD_SAMPLE=100 $(CURDIR)/bin/crash/crash.test -test.v -test.timeout 38m -test.run ^TestAllPoints$$"
	UPDATE=1 FAIRLEAD_CRASH=$(CURDIR)/bin/crash/results go test -count=1 -run '^TestPointsPage$$' ./test/crash

policy-versions: ## network policy with this version's agent on one node and an earlier version's on another one, with etcd and the Kubernetes API; upgrade and roll back while packets flow (builds earlier commits and Kubernetes once; needs root)
	@sh test/install-packages $(TEST_NEEDS) $(K8S_NEEDS)
	FAIRLEAD_POLICY_VERSIONS=1 go test -count=1 -v -timeout 60m -run '^TestPolicyVersions$$' ./test/cluster

bench-policy: ## time changes of network policy on one node, from the event to the kernel, with up to 75,000 policies and 100,000 pods; and what rules add to a packet (needs root)
	FAIRLEAD_POLICY_SCALE=1 go test -count=1 -v -timeout 20m -run '^TestScale$$' ./agent/policy
	FAIRLEAD_POLICY_SCALE=1 go test -count=1 -v -timeout 20m -run '^TestPacketCost$$' ./agent/enforce

cyclonus: ## compare the evaluator of policy, the kernel with the compiled tables, and connections between containers, with Cyclonus in its 230 generated cases, each port of each pair of pods, IPv4 and IPv6 (builds Cyclonus once; needs root)
	@sh test/install-packages $(TEST_NEEDS)
	FAIRLEAD_CYCLONUS=1 go test -count=1 -v -timeout 30m ./test/cyclonus

cyclonus-sctp: ## connections of SCTP between containers in all of Cyclonus' cases, IPv4 and IPv6, in Debian's kernel 6.12, emulated (FAIRLEAD_CYCLONUS=20 for every 20th case; builds Cyclonus once; needs root)
	@sh test/install-packages $(TEST_NEEDS) $(VM_NEEDS)
	FAIRLEAD_CYCLONUS=$(or $(FAIRLEAD_CYCLONUS),1) go run ./test/vm -kernel 6.12 -v -timeout 2h -run '^TestCyclonusSCTP$$' ./test/cyclonus

network-policy-api: ## compare the evaluator of policy, and the kernel with the compiled tables, with what the conformance tests of ClusterNetworkPolicy expect, IPv4 and IPv6, without a cluster (builds them once; needs root)
	FAIRLEAD_NETWORK_POLICY_API=1 go test -count=1 -v -timeout 20m -run '^TestNetworkPolicyAPI$$' ./test/networkpolicyapi

network-policy-api-cluster: ## the conformance tests of ClusterNetworkPolicy as they are, but for SCTP, on three nodes of Kubernetes 1.37 (FOCUS=expression for some; builds all once; needs root)
	@sh test/install-packages $(TEST_NEEDS) $(K8S_NEEDS) $(SUITE_NEEDS)
	FAIRLEAD_POLICY_API='$(or $(FOCUS),.)' go test -count=1 -v -timeout 90m -run '^TestNetworkPolicyAPIConformance$$' ./test/e2e

network-policy-api-sctp: ## the conformance tests of ClusterNetworkPolicy with SCTP, on three nodes of Kubernetes 1.37 in Debian's kernel 6.12, emulated (FOCUS=expression for some; 20 minutes; builds all once; needs root)
	@sh test/install-packages $(TEST_NEEDS) $(K8S_NEEDS) $(SUITE_NEEDS) $(VM_NEEDS)
	FAIRLEAD_POLICY_API='$(or $(FOCUS),SCTP)' go run ./test/vm -kernel 6.12 -memory 12288 -timeout 3h -v -run '^TestNetworkPolicyAPIConformance$$' ./test/e2e

compat: ## compare with the reference plugins in both directions; writes docs/compatibility.md
	@sh test/install-packages $(TEST_NEEDS) $(VM_NEEDS)
	UPDATE=1 FAIRLEAD_BOUNDARIES=all FAIRLEAD_RANDOM=400 FAIRLEAD_SEED=$$(date +%s) go test -timeout 30m ./test/compat
	UPDATE=1 FAIRLEAD_BOUNDARIES=all go run ./test/vm -kernel 6.12 -timeout 90m -write docs -run '^(TestCompatibility|TestBoundaries)$$/^case$$/^features$$' ./test/compat

e2e: ## real containers under containerd 1.6 and 2.3, CRI-O, Podman and nerdctl, every case; writes docs/runtimes.md (CLIENT=Podman for one; builds three of them once; needs root)
	@sh test/install-packages $(TEST_NEEDS) 'gcc:gcc libc6-dev'
	UPDATE=1 FAIRLEAD_E2E=all go test -count=1 -timeout 30m -run '^Test(Runtimes|SwitchAndBack)$$/client/$(CLIENT)' ./test/e2e
	go test -count=1 -run '^Test.*Page$$' ./test/e2e

e2e-start: ## time the start of pods with Fairlead, fused, and with the reference plugins in turn (CLIENT=Podman for one; a quarter of an hour; needs root)
	@sh test/install-packages $(TEST_NEEDS)
	FAIRLEAD_E2E_START=1 go test -count=1 -v -timeout 60m -run '^TestPodStart$$/$(CLIENT)' ./test/e2e

e2e-docker: ## the Docker driver with a real dockerd: every operation, restarts, kills, start times next to Docker's own bridge, compose, and one network with containerd and Podman on two hosts (RUN=TestKills for one; 10 minutes; needs root)
	@sh test/install-packages $(TEST_NEEDS) $(DOCKER_NEEDS)
	FAIRLEAD_E2E_DOCKER=1 go test -count=1 -v -timeout 40m -run '$(or $(RUN),.)' ./test/docker

e2e-docker-vm: ## containers of Docker on macvlan, ipvlan and VLAN links, in Debian's kernel 6.12, emulated (10 minutes; needs root)
	@sh test/install-packages $(TEST_NEEDS) $(DOCKER_NEEDS) $(VM_NEEDS)
	FAIRLEAD_E2E_DOCKER=1 go run ./test/vm -kernel 6.12 -memory 3072 -v -run '^TestParentTypes$$' ./test/docker

test-kubernetes: ## the store, network policy, the installation and the Helm chart, with the API of a real Kubernetes 1.37 (builds its API server and Helm once)
	@sh test/install-packages $(TEST_NEEDS) $(K8S_NEEDS)
	FAIRLEAD_KUBERNETES=1 FAIRLEAD_HELM=1 go test -count=1 -v -timeout 60m ./agent/store/kube ./agent/podnetworks ./agent/enforce ./install/cluster/... ./contrib/kubernetes

test-etcd: ## the agent and its store with the current etcd, 3.7, instead of Debian's (5 minutes; builds it once)
	@sh test/install-packages $(TEST_NEEDS)
	FAIRLEAD_CURRENT_ETCD=1 go test -count=1 -timeout 60m ./agent ./agent/address ./agent/session ./agent/store ./plugins/ipam

crash-kubernetes: ## kill an agent before and after each of its writes to the Kubernetes API, run two agents of one node, disturb requests at random (N=10 for the first writes; a quarter of an hour; needs root)
	@sh test/install-packages $(TEST_NEEDS) $(K8S_NEEDS)
	FAIRLEAD_KUBERNETES_WRITES=$(if $(filter-out file,$(origin N)),$(N),all) go test -count=1 -v -timeout 60m -run '^(TestKilledAtEachWrite|TestTwoAgentsOfOneNode|TestDisturbedRequests)$$' ./test/cluster

bench-kubernetes: ## the agent and flanneld in turn with the Kubernetes API as the store, next to NODES="3 1000 5000 5000+100000" simulated nodes and pods: docs/scale.md (half an hour; builds both once; needs root)
	@sh test/install-packages $(TEST_NEEDS) $(K8S_NEEDS)
	FAIRLEAD_KUBERNETES_SCALE='$(or $(NODES),3 1000 5000 5000+100000)' go test -count=1 -v -timeout 60m -run '^TestKubernetesScale$$' ./test/e2e

bench-pods: ## time the start of pods on three nodes of Kubernetes, alone and 100 at once, with Fairlead, with and without network policy, with flanneld and the reference plugins, and with a plugin that does nothing, in turn (ROUNDS=3; 10 minutes; builds both once; needs root)
	@sh test/install-packages $(TEST_NEEDS) $(K8S_NEEDS)
	FAIRLEAD_POD_STARTS='$(or $(ROUNDS),3)' go test -count=1 -v -timeout 60m -run '^TestKubernetesPodStart$$' ./test/e2e

e2e-kubernetes: ## Kubernetes 1.33 and 1.37 of one node and of three, both modes of kube-proxy; writes docs/runtimes.md (CLUSTER="one node, iptables" for one; builds Kubernetes once; needs root)
	@sh test/install-packages $(TEST_NEEDS) $(K8S_NEEDS)
	UPDATE=1 FAIRLEAD_E2E_KUBERNETES='$(or $(CLUSTER),all)' go test -count=1 -v -timeout 60m -run '^TestKubernetes$$' ./test/e2e
	go test -count=1 -run '^TestKubernetesPage$$' ./test/e2e

e2e-pod-networks: ## pods with several networks on two nodes of Kubernetes 1.37 (builds Kubernetes once; needs root)
	@sh test/install-packages $(TEST_NEEDS) $(K8S_NEEDS)
	FAIRLEAD_E2E_POD_NETWORKS=yes go test -count=1 -v -timeout 60m -run '^TestPodNetworks$$' ./test/e2e

e2e-pod-networks-vm: ## pods on ipvlan and VLAN links of two nodes of Kubernetes 1.37, in Debian's kernel 6.12, emulated (10 minutes; builds Kubernetes once; needs root)
	@sh test/install-packages $(TEST_NEEDS) $(K8S_NEEDS) $(SUITE_NEEDS) $(VM_NEEDS)
	FAIRLEAD_E2E_POD_NETWORKS=yes go run ./test/vm -kernel 6.12 -memory 8192 -timeout 90m -v -run '^TestPodNetworks$$/^ipvlan$$' ./test/e2e

e2e-flannel: ## switch a cluster of three nodes from flannel (Kubernetes API) to Fairlead and back while packets flow; writes docs/flannel.md (CLUSTER=vxlan for one; builds Kubernetes and flanneld once; needs root)
	@sh test/install-packages $(TEST_NEEDS) $(K8S_NEEDS)
	UPDATE=1 FAIRLEAD_E2E_FLANNEL='$(or $(CLUSTER),all)' go test -count=1 -v -timeout 90m -run '^TestSwitchFromFlannel$$' ./test/e2e

conformance: ## Kubernetes' own network tests on three nodes of 1.37 (FOCUS=expression, conformance or network; CLUSTER="three nodes, nftables, Kubernetes store, dual stack" for one; builds them once; needs root)
	@sh test/install-packages $(TEST_NEEDS) $(K8S_NEEDS) $(SUITE_NEEDS)
	UPDATE=1 FAIRLEAD_CONFORMANCE='$(or $(FOCUS),conformance)' FAIRLEAD_CONFORMANCE_CLUSTER='$(CLUSTER)' go test -count=1 -v -timeout 10h -run '^TestConformance$$' ./test/e2e

conformance-sctp: ## Kubernetes' own network tests that need SCTP, on three nodes of 1.37 in Debian's kernel 6.12, emulated (25 minutes; 12 GiB of memory; builds them once; needs root)
	@sh test/install-packages $(TEST_NEEDS) $(K8S_NEEDS) $(SUITE_NEEDS) $(VM_NEEDS)
	UPDATE=1 FAIRLEAD_CONFORMANCE=SCTP FAIRLEAD_CONFORMANCE_CLUSTER='three nodes, nftables, Kubernetes store, dual stack' go run ./test/vm -kernel 6.12 -memory 12288 -timeout 2h -v -write . -run '^TestConformance$$' ./test/e2e

kubernetes: ## a cluster to work with: three nodes, dual stack, DNS, Fairlead; prints its KUBECONFIG (MODE=iptables for kube-proxy; needs root)
	@sh test/install-packages $(TEST_NEEDS) $(K8S_NEEDS) $(SUITE_NEEDS)
	@FAIRLEAD_KUBERNETES_MODE='$(MODE)' test/kubernetes up

kubernetes-down: ## end the cluster of make kubernetes
	@test/kubernetes down

clean: ## remove the build's output
	rm -rf bin
