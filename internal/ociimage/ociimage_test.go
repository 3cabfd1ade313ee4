package ociimage

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"crypto/x509"
	"encoding/json"
	"io"
	"strings"
	"testing"
)

func TestArchiveOfOnePlatform(t *testing.T) {
	t.Parallel()
	files := readImage(t, "docker.io/x/y:1", "arm64")
	index := files.index(t)
	if len(index) != 1 || index[0].Annotations["io.containerd.image.name"] != "docker.io/x/y:1" {
		t.Fatalf("index.json: %s", files["index.json"])
	}
	files.checkPlatform(t, index[0], "arm64")
}

func TestArchiveOfSeveralPlatforms(t *testing.T) {
	t.Parallel()
	files := readImage(t, "docker.io/x/y:1", "amd64", "arm64")
	index := files.index(t)
	if len(index) != 1 || index[0].Annotations["org.opencontainers.image.ref.name"] != "docker.io/x/y:1" {
		t.Fatalf("index.json: %s", files["index.json"])
	}
	var list struct{ Manifests []descriptor }
	files.blob(t, index[0].Digest, &list)
	if len(list.Manifests) != 2 {
		t.Fatalf("%d platforms, want 2", len(list.Manifests))
	}
	for i, arch := range []string{"amd64", "arm64"} {
		if got := list.Manifests[i].Platform["architecture"]; got != arch {
			t.Errorf("platform %d is %s, want %s", i, got, arch)
		}
		files.checkPlatform(t, list.Manifests[i], arch)
	}
}

// members maps the names in a tar archive to their contents, or to "-> TARGET".
type members map[string][]byte

// readImage packs a program per architecture twice, compares the two archives, and checks every digest.
func readImage(t *testing.T, name string, archs ...string) members {
	t.Helper()
	var platforms []Platform
	for _, arch := range archs {
		platforms = append(platforms, Platform{Arch: arch, Programs: []Program{{Name: "fairlead", Data: []byte("program for " + arch)}}})
	}
	raw, err := Archive(name, platforms)
	if err != nil {
		t.Fatal(err)
	}
	if again, _ := Archive(name, platforms); !bytes.Equal(raw, again) {
		t.Error("two archives of the same programs differ")
	}
	files := untar(t, raw)
	for name, data := range files {
		if sum, ok := strings.CutPrefix(name, "blobs/sha256/"); ok && digest(data) != "sha256:"+sum {
			t.Errorf("%s has the digest %s", name, digest(data))
		}
	}
	return files
}

func (m members) index(t *testing.T) []descriptor {
	t.Helper()
	var index struct{ Manifests []descriptor }
	if err := json.Unmarshal(m["index.json"], &index); err != nil {
		t.Fatal(err)
	}
	return index.Manifests
}

func (m members) blob(t *testing.T, digest string, v any) []byte {
	t.Helper()
	data, ok := m["blobs/sha256/"+strings.TrimPrefix(digest, "sha256:")]
	if !ok {
		t.Fatalf("no blob %s", digest)
	}
	if v != nil {
		if err := json.Unmarshal(data, v); err != nil {
			t.Fatal(err)
		}
	}
	return data
}

func (m members) checkPlatform(t *testing.T, d descriptor, arch string) {
	t.Helper()
	var manifest struct {
		Config descriptor
		Layers []descriptor
	}
	m.blob(t, d.Digest, &manifest)
	var config struct {
		Architecture string
		Config       struct{ Entrypoint []string }
		RootFS       struct {
			DiffIDs []string `json:"diff_ids"`
		}
	}
	m.blob(t, manifest.Config.Digest, &config)
	unzip, err := gzip.NewReader(bytes.NewReader(m.blob(t, manifest.Layers[0].Digest, nil)))
	if err != nil {
		t.Fatal(err)
	}
	rootfs, err := io.ReadAll(unzip)
	if err != nil {
		t.Fatal(err)
	}
	if config.Architecture != arch || config.Config.Entrypoint[0] != "/fairlead" || config.RootFS.DiffIDs[0] != digest(rootfs) {
		t.Errorf("configuration %+v, the layer has the digest %s", config, digest(rootfs))
	}
	inside := untar(t, rootfs)
	if string(inside["fairlead"]) != "program for "+arch || string(inside["var/run"]) != "-> ../run" {
		t.Errorf("fairlead %q, var/run %q", inside["fairlead"], inside["var/run"])
	}
	pool := x509.NewCertPool()
	if !pool.AppendCertsFromPEM(inside["etc/ssl/certs/ca-certificates.crt"]) || len(certificates()) < 50_000 {
		t.Errorf("the image has no usable CA certificates (%d bytes)", len(certificates()))
	}
}

func untar(t *testing.T, raw []byte) members {
	t.Helper()
	out := members{}
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
