// Package flanneld gives tests a real flanneld, built from source through the Go
// module proxy when it is first asked for, which takes some minutes.
package flanneld

import (
	"os"
	"os/exec"
	"strings"

	"github.com/fairlead/fairlead/internal/built"
)

// Version is flannel's.
const Version = "v0.28.9"

// build copies the module and leaves out two backends: of one, a cloud's, the proxy
// does not have all modules; the other, udp, wants a compiler of C.
const build = `set -e
src=$(go mod download -json github.com/flannel-io/flannel@"$1" | sed -n 's/.*"Dir": "\(.*\)".*/\1/p')
cp -r "$src" src
chmod -R u+w src
cd src
sed -i '/pkg\/backend\/tencentvpc"/d; /pkg\/backend\/udp"/d' main.go
go build -trimpath -ldflags '-s -w' -o ../flanneld .
`

// Program is the path of the program.
func Program() (string, error) {
	return built.Program("flannel-"+Version, "flanneld", func(temp string) *exec.Cmd {
		cmd := exec.Command("sh", "-s", Version)
		cmd.Dir, cmd.Stdin = temp, strings.NewReader(build)
		cmd.Env = append(os.Environ(), "GOFLAGS=-mod=readonly", "CGO_ENABLED=0", "GOWORK=off")
		return cmd
	})
}
