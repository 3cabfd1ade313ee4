// Emptyplugin is a CNI plugin that does nothing. What a runtime needs for it is the least that any plugin costs.
package main

import "os"

func main() {
	switch os.Getenv("CNI_COMMAND") {
	case "ADD": // containerd wants an address of the pod
		_, _ = os.Stdout.WriteString(`{"cniVersion": "0.4.0", "interfaces": [{"name": "eth0", "sandbox": "pod"}], ` +
			`"ips": [{"version": "4", "interface": 0, "address": "192.0.2.1/24"}]}`)
	case "VERSION":
		_, _ = os.Stdout.WriteString(`{"cniVersion": "0.4.0", "supportedVersions": ["0.4.0"]}`)
	}
}
