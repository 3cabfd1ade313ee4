// Package flanneld builds flanneld from source for tests, with the Go module proxy. The first build takes some minutes.
package flanneld

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"

	"github.com/fairlead/fairlead/internal/built"
	"github.com/fairlead/fairlead/test/fromsource"
)

// Version is the version of flannel.
const Version = "v0.28.9"

const module = "github.com/flannel-io/flannel@" + Version

// without removes two backends: the proxy lacks modules of tencentvpc, and udp needs a C compiler.
const without = `sed -i '/pkg\/backend\/tencentvpc"/d; /pkg\/backend\/udp"/d' main.go`

// Program returns the path of flanneld, and builds it if necessary.
func Program() (string, error) {
	return fromsource.Program("flannel-"+Version, "flanneld", module, ".", without)
}

// InstallConf returns the path of the program with which flannel's DaemonSet copies its list of plugins.
func InstallConf() (string, error) {
	return fromsource.Program("flannel-"+Version, "install-conf", module, "./cmd/install_conf", without)
}

// Plugin returns the path of a plugin flannel of another project. The module proxy does not have flannel's own repository
// of it. This one is its ancestor, the last one that the reference plugins had.
func Plugin() (string, error) {
	return built.Program("plugins-v0.9.1", "flannel", built.Install("github.com/containernetworking/plugins/plugins/meta/flannel@v0.9.1", "-s -w"))
}

// Manifest returns flannel's manifest for Kubernetes.
func Manifest() (string, error) {
	out, err := exec.Command("go", "mod", "download", "-json", module).Output()
	var m struct{ Dir string }
	if err == nil {
		err = json.Unmarshal(out, &m)
	}
	if err != nil {
		return "", fmt.Errorf("go mod download %s: %w", module, err)
	}
	raw, err := os.ReadFile(filepath.Join(m.Dir, "Documentation", "kube-flannel.yml"))
	return string(raw), err
}
