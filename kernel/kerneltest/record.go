package kerneltest

import (
	"bufio"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"runtime/debug"
	"strings"
	"testing"
)

// Environment variables of a test run.
const (
	FeaturesVariable = "FAIRLEAD_FEATURES" // file to append records to; unset: none
	WhereVariable    = "FAIRLEAD_WHERE"    // name of the kernel; unset: "host"
)

// Record tells whether a test that needs a feature ran on a kernel.
type Record struct {
	Feature, Package, Test, Where string
	Ran                           bool
}

const (
	ranWord     = "ran"
	skippedWord = "skipped"
)

func (r Record) String() string {
	word := skippedWord
	if r.Ran {
		word = ranWord
	}
	return strings.Join([]string{r.Feature, r.Package, r.Test, r.Where, word}, "\t")
}

// ReadRecords reads a file of records. A missing file has none.
func ReadRecords(file string) (out []Record, err error) {
	f, err := os.Open(file)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	defer f.Close()
	lines := bufio.NewScanner(f)
	for lines.Scan() {
		w := strings.Split(lines.Text(), "\t")
		if len(w) != 5 {
			return nil, fmt.Errorf("%s: not a record: %q", file, lines.Text())
		}
		out = append(out, Record{w[0], w[1], w[2], w[3], w[4] == ranWord})
	}
	return out, lines.Err()
}

// note appends a record in one write, so that many processes can append at once.
func note(t testing.TB, feature string, ran bool) {
	t.Helper()
	file := os.Getenv(FeaturesVariable)
	if file == "" {
		return
	}
	r := Record{feature, testedPackage(), t.Name(), os.Getenv(WhereVariable), ran}
	if r.Where == "" {
		r.Where = "host"
	}
	f, err := os.OpenFile(file, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o644)
	if err == nil {
		_, err = f.WriteString(r.String() + "\n")
		err = errors.Join(err, f.Close())
	}
	if err != nil {
		t.Fatalf("note that the test needs %s: %v", feature, err)
	}
}

// testedPackage returns the import path of the package that this test binary tests.
func testedPackage() string {
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return "unknown"
	}
	return strings.TrimSuffix(info.Path, ".test")
}
