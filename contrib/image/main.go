// Command image writes an OCI image of programs as an archive, without an engine or a
// registry: "ctr images import", "podman load" and "skopeo copy oci-archive:" read it. The
// same programs make the same bytes.
package main

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
)

func main() {
	out := flag.String("o", "fairlead-image.tar", "the archive to write")
	name := flag.String("name", "docker.io/fairlead/fairlead:latest", "the image's reference")
	arch := flag.String("arch", runtime.GOARCH, "the programs' architecture, in Go's words")
	flag.Usage = func() {
		fmt.Fprintln(os.Stderr, "usage: image [-o FILE] [-name REFERENCE] [-arch ARCH] PROGRAM...\nThe first program is the image's entry point.")
		flag.PrintDefaults()
	}
	flag.Parse()
	if flag.NArg() == 0 {
		flag.Usage()
		os.Exit(2)
	}
	raw, err := archive(*name, *arch, flag.Args())
	if err == nil {
		err = os.WriteFile(*out, raw, 0o644)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "image:", err)
		os.Exit(1)
	}
}

// blob is a member of the archive that others name by its digest (OCI image specification
// 1.1, descriptor).
type blob struct {
	MediaType   string            `json:"mediaType"`
	Digest      string            `json:"digest"`
	Size        int               `json:"size"`
	Annotations map[string]string `json:"annotations,omitempty"`
	Platform    map[string]string `json:"platform,omitempty"`

	data []byte
}

func blobOf(mediaType string, data []byte) blob {
	return blob{MediaType: mediaType, Digest: digest(data), Size: len(data), data: data}
}

func digest(data []byte) string {
	sum := sha256.Sum256(data)
	return "sha256:" + hex.EncodeToString(sum[:])
}

// archive is the image layout in a tar file.
func archive(name, arch string, programs []string) ([]byte, error) {
	// Runtimes name namespaces /var/run/netns/NAME: it has to lead where it does on hosts.
	files := []file{{name: "var/run", link: "../run"}}
	for _, p := range programs {
		data, err := os.ReadFile(p)
		if err != nil {
			return nil, err
		}
		files = append(files, file{name: filepath.Base(p), data: data, mode: 0o755})
	}
	rootfs, err := tarOf(files)
	if err != nil {
		return nil, err
	}
	var packed bytes.Buffer
	zip := gzip.NewWriter(&packed) // without a time or name
	if _, err := zip.Write(rootfs); err != nil {
		return nil, err
	}
	if err := zip.Close(); err != nil {
		return nil, err
	}
	type object = map[string]any
	layer := blobOf("application/vnd.oci.image.layer.v1.tar+gzip", packed.Bytes())
	config, err := jsonBlob("application/vnd.oci.image.config.v1+json", object{
		"architecture": arch, "os": "linux",
		"config": object{"Entrypoint": []string{"/" + filepath.Base(programs[0])}, "Env": []string{"PATH=/"}},
		"rootfs": object{"type": "layers", "diff_ids": []string{digest(rootfs)}},
	})
	if err != nil {
		return nil, err
	}
	manifest, err := jsonBlob("application/vnd.oci.image.manifest.v1+json", object{
		"schemaVersion": 2, "mediaType": "application/vnd.oci.image.manifest.v1+json", "config": config, "layers": []blob{layer},
	})
	if err != nil {
		return nil, err
	}
	manifest.Platform = map[string]string{"architecture": arch, "os": "linux"}
	manifest.Annotations = map[string]string{"io.containerd.image.name": name, "org.opencontainers.image.ref.name": name}
	index, err := jsonBlob("", object{"schemaVersion": 2, "mediaType": "application/vnd.oci.image.index.v1+json", "manifests": []blob{manifest}})
	if err != nil {
		return nil, err
	}
	members := []file{{name: "oci-layout", data: []byte(`{"imageLayoutVersion":"1.0.0"}`), mode: 0o644}, {name: "index.json", data: index.data, mode: 0o644}}
	for _, b := range []blob{manifest, config, layer} {
		members = append(members, file{name: "blobs/sha256/" + b.Digest[len("sha256:"):], data: b.data, mode: 0o644})
	}
	return tarOf(members)
}

func jsonBlob(mediaType string, v any) (blob, error) {
	data, err := json.Marshal(v)
	return blobOf(mediaType, data), err
}

type file struct {
	name string
	data []byte
	mode int64
	link string // what a symbolic link leads to
}

// tarOf packs files, owned by root, of no time.
func tarOf(files []file) ([]byte, error) {
	var out bytes.Buffer
	w := tar.NewWriter(&out)
	for _, f := range files {
		h := tar.Header{Typeflag: tar.TypeReg, Name: f.name, Size: int64(len(f.data)), Mode: f.mode, Format: tar.FormatUSTAR}
		if f.link != "" {
			h.Typeflag, h.Linkname, h.Mode = tar.TypeSymlink, f.link, 0o777
		}
		if err := w.WriteHeader(&h); err != nil {
			return nil, err
		}
		if _, err := w.Write(f.data); err != nil {
			return nil, err
		}
	}
	err := w.Close()
	return out.Bytes(), err
}
