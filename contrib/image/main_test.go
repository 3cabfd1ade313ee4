package main

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"encoding/json"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// The archive is an image layout whose every digest is right, down to the program, and
// the same twice.
func TestArchive(t *testing.T) {
	t.Parallel()
	program := filepath.Join(t.TempDir(), "fairlead")
	if err := os.WriteFile(program, []byte("a program"), 0o700); err != nil {
		t.Fatal(err)
	}
	raw, err := archive("docker.io/x/y:1", "arm64", []string{program})
	if err != nil {
		t.Fatal(err)
	}
	again, _ := archive("docker.io/x/y:1", "arm64", []string{program})
	if !bytes.Equal(raw, again) {
		t.Error("two archives of one program differ")
	}
	files := members(t, raw)
	for name, data := range files {
		if sum, ok := strings.CutPrefix(name, "blobs/sha256/"); ok && digest(data) != "sha256:"+sum {
			t.Errorf("%s is %s", name, digest(data))
		}
	}
	get := func(d string, v any) []byte {
		t.Helper()
		data, ok := files["blobs/sha256/"+strings.TrimPrefix(d, "sha256:")]
		if !ok {
			t.Fatalf("no blob %s", d)
		}
		if v != nil {
			if err := json.Unmarshal(data, v); err != nil {
				t.Fatal(err)
			}
		}
		return data
	}
	var index struct{ Manifests []blob }
	if err := json.Unmarshal(files["index.json"], &index); err != nil || len(index.Manifests) != 1 || index.Manifests[0].Annotations["io.containerd.image.name"] != "docker.io/x/y:1" {
		t.Fatalf("%v: %s", err, files["index.json"])
	}
	var manifest struct {
		Config blob
		Layers []blob
	}
	get(index.Manifests[0].Digest, &manifest)
	var config struct {
		Architecture string
		Config       struct{ Entrypoint []string }
		RootFS       struct {
			DiffIDs []string `json:"diff_ids"`
		}
	}
	get(manifest.Config.Digest, &config)
	zip, err := gzip.NewReader(bytes.NewReader(get(manifest.Layers[0].Digest, nil)))
	if err != nil {
		t.Fatal(err)
	}
	rootfs, err := io.ReadAll(zip)
	if err != nil || config.Architecture != "arm64" || config.Config.Entrypoint[0] != "/fairlead" || config.RootFS.DiffIDs[0] != digest(rootfs) {
		t.Errorf("%v: %+v, the layer is %s", err, config, digest(rootfs))
	}
	if inside := members(t, rootfs); string(inside["fairlead"]) != "a program" || string(inside["var/run"]) != "-> ../run" {
		t.Errorf("%q", inside)
	}
}

func members(t *testing.T, raw []byte) map[string][]byte {
	t.Helper()
	out := map[string][]byte{}
	for r := tar.NewReader(bytes.NewReader(raw)); ; {
		h, err := r.Next()
		if err == io.EOF {
			return out
		}
		if err != nil {
			t.Fatal(err)
		}
		if h.Typeflag == tar.TypeSymlink {
			out[h.Name] = []byte("-> " + h.Linkname)
		} else if out[h.Name], err = io.ReadAll(r); err != nil {
			t.Fatal(err)
		}
	}
}
