package e2e

import (
	"errors"
	"fmt"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/fairlead/fairlead/kernel/kerneltest"
	"github.com/fairlead/fairlead/test/fromsource"
)

// multusVersion is the version of Multus with which pods are switched.
const multusVersion = "v4.2.3"

// multusFile comes first in the directory, so that containerd calls Multus, which calls our list for eth0.
const multusFile = "/etc/cni/net.d/00-multus.conf"

const multusConfig = `{"cniVersion": "1.0.0", "name": "multus-cni-network", "type": "multus", "kubeconfig": "` + kubeConfig + `",
	"clusterNetwork": "/etc/cni/net.d/10-fairlead.conflist", "capabilities": {"portMappings": true, "bandwidth": true}}`

func multusProgram(t *testing.T) string {
	t.Helper()
	path, err := fromsource.Program("multus-"+multusVersion, "multus", "gopkg.in/k8snetworkplumbingwg/multus-cni.v4@"+multusVersion, "./cmd/multus", ":")
	if err != nil {
		t.Fatal(err)
	}
	return path
}

// switchToMultusAndBack checks the way from Multus to fairlead-pod and back, with pods that run and are deleted on the
// other side.
func switchToMultusAndBack(t *testing.T, c *cluster) {
	if err := copyFile(multusProgram(t), filepath.Join(c.dir, "multus")); err != nil {
		t.Fatal(err)
	}
	useMultus := func() {
		for _, n := range c.hosts {
			n.shell(t, "cp /mnt/e2e/multus /opt/cni/bin/multus")
			n.write(t, multusFile, multusConfig)
		}
		time.Sleep(3 * time.Second) // until containerd has read it
	}
	noMultus := func() {
		for _, n := range c.hosts {
			n.shell(t, "rm -f "+multusFile)
		}
		time.Sleep(3 * time.Second)
	}
	t.Cleanup(func() {
		noMultus()
		c.setPodNetworks(t, true)
	})
	s := &multusSwitch{cluster: c}

	c.setPodNetworks(t, false)
	useMultus()
	s.start(t, "multus1")
	s.start(t, "multus2")
	s.checkReach(t)

	c.setPodNetworks(t, true)
	noMultus()
	s.start(t, "fairlead1")
	s.start(t, "fairlead2")
	s.checkReach(t)
	s.remove(t, "multus1")

	useMultus() // the way back: fairlead-pod stays as long as pods have networks of it
	s.start(t, "multus3")
	s.checkReach(t)
	s.remove(t, "fairlead1")
	s.remove(t, "multus2")
	s.remove(t, "fairlead2")
	c.setPodNetworks(t, false)
	s.start(t, "multus4")
	s.checkReach(t)
	s.remove(t, "multus3")
	c.deleteSeveral(t, "multus4")
	noMultus()
	c.checkHealthy(t)
}

// multusSwitch has the pods that run.
type multusSwitch struct {
	*cluster
	pods []multusPod
}

type multusPod struct {
	kubePod
	networks []networkStatus
}

// start starts a pod with two networks next to its default one.
func (s *multusSwitch) start(t *testing.T, name string) {
	t.Helper()
	pod, list := s.severalPod(t, name, "lan,back", s.hosts[0])
	if len(list) != 3 || list[1].Interface != "net1" || list[2].Interface != "net2" {
		t.Fatalf("network-status of %s has %+v", name, list)
	}
	s.pods = append(s.pods, multusPod{pod, list})
}

// checkReach checks that the last pod reaches each other one on all networks.
func (s *multusSwitch) checkReach(t *testing.T) {
	t.Helper()
	from := s.pods[len(s.pods)-1]
	for _, to := range s.pods[:len(s.pods)-1] {
		for i, n := range to.networks {
			wantAnswer(t, s.inPod(from.kubePod), "tcp", at(n.IPs[0], servePort), to.name, from.networks[i].IPs[0])
		}
	}
}

// remove deletes a pod and checks that its node has nothing of it. Only containerd's cache of results stays when another
// list comes first than at the pod's start.
func (s *multusSwitch) remove(t *testing.T, name string) {
	t.Helper()
	for i, p := range s.pods {
		if p.name != name {
			continue
		}
		id := strings.TrimSpace(s.hosts[0].shell(t, `ctr -n k8s.io containers ls -q 'labels."io.kubernetes.pod.name"==`+name+`,labels."io.cri-containerd.kind"==sandbox'`))
		s.mustKubectl(t, "delete", "pod", name, "--wait=true", "--timeout=60s")
		kerneltest.Within(t, 30*time.Second, func() error {
			find := "find /var/lib/cni/networks /var/lib/cni/fairlead /var/lib/cni/multus -name '*" + id + "*'"
			for _, n := range p.networks {
				find += " -o -name " + n.IPs[0]
			}
			if left := strings.TrimSpace(s.hosts[0].shell(t, find)); left != "" {
				return fmt.Errorf("after the deletion of %s, its node still has\n%s", name, left)
			}
			return nil
		})
		s.pods = append(s.pods[:i], s.pods[i+1:]...)
		return
	}
	t.Fatal(errors.New("there is no pod " + name))
}
