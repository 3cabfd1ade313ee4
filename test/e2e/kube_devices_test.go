package e2e

import (
	"encoding/json"
	"fmt"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/fairlead/fairlead/internal/kubetest"
	"github.com/fairlead/fairlead/kernel/kerneltest"
)

// deviceResource is the resource of Kubernetes' sample device plugin, which has two devices.
const deviceResource = "example.com/resource"

// recordPlugin stores its configuration and then runs bridge with it.
const recordPlugin = `#!/bin/sh
f=/run/record.$CNI_COMMAND.$(echo "$CNI_ARGS" | sed 's/.*K8S_POD_NAME=\([^;]*\).*/\1/')
cat > "$f"
sed 's/"record"/"bridge"/' "$f" | /opt/cni/bin/bridge
`

// devicesOfPods checks that the plugins of a network with a resource get the device that the kubelet allocated to the
// pod, with Kubernetes' sample device plugin. Its devices are not network interfaces.
func devicesOfPods(t *testing.T, c *cluster) {
	if err := copyFile(kubetest.Program(t, "test/images/sample-device-plugin"), filepath.Join(c.programs.dir, "sample-device-plugin")); err != nil {
		t.Fatal(err)
	}
	n := c.hosts[0]
	n.write(t, "/opt/cni/bin/record", recordPlugin)
	n.shell(t, "chmod +x /opt/cni/bin/record")
	plugin := c.daemon(t, n.host, "env", "PLUGIN_SOCK_DIR=/var/lib/kubelet/device-plugins", "/mnt/e2e/sample-device-plugin")
	t.Cleanup(func() { n.shell(t, "kill "+plugin) })
	kerneltest.Within(t, time.Minute, func() error {
		out, err := c.kubectl("get", "node", n.name, "-o", `jsonpath={.status.allocatable.example\.com/resource}`)
		if err == nil && out != "2" {
			err = fmt.Errorf("%s has %q devices", n.name, out)
		}
		return err
	})

	names := []string{"device-1", "device-2"}
	for _, name := range names {
		c.startWithLimits(t, name, "nic", "{"+deviceResource+": 1}", n)
	}
	var used []string
	for _, name := range names {
		pod, status := c.waitForSeveral(t, name)
		allocated := c.allocatedDevices(t, n, name)
		if len(allocated) != 1 || slices.Contains(used, allocated[0]) {
			t.Fatalf("the kubelet allocated %v to %s; others have %v", allocated, name, used)
		}
		used = append(used, allocated...)
		var config struct {
			DeviceID      string
			PCIBusID      string
			RuntimeConfig struct{ DeviceID string }
		}
		if err := json.Unmarshal([]byte(n.shell(t, "cat /run/record.ADD."+name)), &config); err != nil {
			t.Fatal(err)
		}
		if config.DeviceID != allocated[0] || config.PCIBusID != allocated[0] || config.RuntimeConfig.DeviceID != allocated[0] {
			t.Errorf("the plugin of %s has %+v, the kubelet allocated %v", name, config, allocated)
		}
		if len(status) != 2 || status[1].Name != "default/nic" || len(status[1].IPs) != 1 {
			t.Fatalf("the networks of %s are %+v", name, status)
		}
		wantAnswer(t, n.onNode, "tcp", at(status[1].IPs[0], servePort), pod.name, "")
	}
	c.deleteSeveral(t, names...)
	for _, name := range names {
		var config struct{ DeviceID string }
		if err := json.Unmarshal([]byte(n.shell(t, "cat /run/record.DEL."+name)), &config); err != nil || !slices.Contains(used, config.DeviceID) {
			t.Errorf("DEL of %s: %+v, %v", name, config, err)
		}
	}

	// The network of a pod that does not request the resource gets no device, as with Multus.
	c.startSeveral(t, "none", "nic", n)
	c.waitForSeveral(t, "none")
	var config struct{ DeviceID, PCIBusID string }
	if err := json.Unmarshal([]byte(n.shell(t, "cat /run/record.ADD.none")), &config); err != nil || config.DeviceID != "" || config.PCIBusID != "" {
		t.Errorf("without the resource, the plugin has %+v (%v)", config, err)
	}
	c.deleteSeveral(t, "none")
}

// allocatedDevices returns the devices of a pod from the kubelet's own file.
func (c *cluster) allocatedDevices(t *testing.T, n *kubeNode, pod string) (ids []string) {
	t.Helper()
	uid := c.mustKubectl(t, "get", "pod", pod, "-o", "jsonpath={.metadata.uid}")
	var file struct {
		Data struct {
			PodDeviceEntries []struct {
				PodUID, ResourceName string
				DeviceIDs            map[string][]string // by NUMA node
			}
		}
	}
	if err := json.Unmarshal([]byte(n.shell(t, "cat /var/lib/kubelet/device-plugins/kubelet_internal_checkpoint")), &file); err != nil {
		t.Fatal(err)
	}
	for _, e := range file.Data.PodDeviceEntries {
		if e.PodUID == uid && e.ResourceName == deviceResource {
			for _, list := range e.DeviceIDs {
				ids = append(ids, list...)
			}
		}
	}
	return ids
}
