// Package flanneld builds flanneld from source for tests, with the Go module proxy. The first build takes some minutes.
package flanneld

import "github.com/fairlead/fairlead/test/fromsource"

// Version is the version of flannel.
const Version = "v0.28.9"

// without removes two backends: the proxy lacks modules of tencentvpc, and udp needs a C compiler.
const without = `sed -i '/pkg\/backend\/tencentvpc"/d; /pkg\/backend\/udp"/d' main.go`

// Program returns the path of flanneld, and builds it if necessary.
func Program() (string, error) {
	return fromsource.Program("flannel-"+Version, "flanneld", "github.com/flannel-io/flannel@"+Version, ".", without)
}
