// Package flanneld builds flanneld from source for tests, with the Go module proxy. The first build takes some minutes.
package flanneld

import (
	"os"
	"os/exec"
	"strings"

	"github.com/fairlead/fairlead/internal/built"
)

// Version is the version of flannel.
const Version = "v0.28.9"

// build copies the module and builds it without two backends: the proxy lacks modules of tencentvpc, and udp needs a C
// compiler.
const build = `set -e
src=$(go mod download -json github.com/flannel-io/flannel@"$1" | sed -n 's/.*"Dir": "\(.*\)".*/\1/p')
cp -r "$src" src
chmod -R u+w src
cd src
sed -i '/pkg\/backend\/tencentvpc"/d; /pkg\/backend\/udp"/d' main.go
go build -trimpath -ldflags '-s -w' -o ../flanneld .
`

// Program returns the path of flanneld, and builds it if necessary.
func Program() (string, error) {
	return built.Program("flannel-"+Version, "flanneld", func(temp string) *exec.Cmd {
		cmd := exec.Command("sh", "-s", Version)
		cmd.Dir, cmd.Stdin = temp, strings.NewReader(build)
		cmd.Env = append(os.Environ(), "GOFLAGS=-mod=readonly", "CGO_ENABLED=0", "GOWORK=off")
		return cmd
	})
}
