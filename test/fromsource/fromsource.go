// Package fromsource builds third-party programs for tests from a copy of their module, with the module's own go.sum.
package fromsource

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"strings"

	"github.com/fairlead/fairlead/internal/built"
)

// script copies a module, changes the copy, and builds a program.
const script = `set -e
src=$(go mod download -json "$1" | sed -n 's/.*"Dir": "\(.*\)".*/\1/p')
cp -r "$src" src
chmod -R u+w src
cd src
eval "$4"
go $5 -trimpath -ldflags '-s -w' -o ../"$3" "$2"
`

// Program returns the path of a program in a directory of the cache, and builds it if necessary from a package of a
// module, "MODULE@VERSION". The shell command prepare changes the copy of the module first.
func Program(dir, name, module, pkg, prepare string) (string, error) {
	return program(dir, name, module, pkg, prepare, "build")
}

// Tests is Program for the tests of a package.
func Tests(dir, name, module, pkg, prepare string) (string, error) {
	return program(dir, name, module, pkg, prepare, "test -c")
}

// Source returns the directory with the source of a module, "MODULE@VERSION".
func Source(module string) (string, error) {
	var m struct{ Dir, Error string }
	if err := Decode(&m, "go", "mod", "download", "-json", module); err != nil {
		return "", fmt.Errorf("%w: %s", err, m.Error)
	}
	return m.Dir, nil
}

func program(dir, name, module, pkg, prepare, verb string) (string, error) {
	return built.Program(dir, name, func(temp string) *exec.Cmd {
		cmd := exec.Command("sh", "-s", module, pkg, name, prepare, verb)
		cmd.Dir, cmd.Stdin = temp, strings.NewReader(script)
		cmd.Env = append(os.Environ(), "GOFLAGS=-mod=readonly", "CGO_ENABLED=0", "GOWORK=off")
		return cmd
	})
}

// Decode runs a program and decodes the JSON value at the beginning of its output.
func Decode(out any, program string, args ...string) error {
	raw, err := exec.Command(program, args...).Output()
	if err == nil {
		err = json.NewDecoder(bytes.NewReader(raw)).Decode(out)
	}
	if err != nil {
		return fmt.Errorf("%s %v: %w", program, args, err)
	}
	return nil
}
