// Package ociimage writes an OCI image as one tar archive, without a container engine and without a registry.
//
// "ctr images import", "podman load" and "skopeo copy oci-archive:" read the archive. The same programs always give
// the same bytes.
package ociimage

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"encoding/pem"
	"path"

	"golang.org/x/crypto/x509roots/fallback/bundle"
)

// DefaultName is the reference that the Kubernetes manifests in contrib/kubernetes use.
const DefaultName = "docker.io/fairlead/fairlead:latest"

// Platform is the part of an image for one processor architecture.
type Platform struct {
	Arch     string // as GOARCH names it: amd64, arm64
	Programs []Program
}

// Program is one executable in the root directory of the image. The first program of a platform is the entry point.
type Program struct {
	Name string
	Data []byte
}

// descriptor refers to a blob by its digest (OCI image specification 1.1, descriptor.md).
type descriptor struct {
	MediaType   string            `json:"mediaType"`
	Digest      string            `json:"digest"`
	Size        int               `json:"size"`
	Annotations map[string]string `json:"annotations,omitempty"`
	Platform    map[string]string `json:"platform,omitempty"`
}

type object = map[string]any

// layout collects the blobs of one image layout (OCI image specification 1.1, image-layout.md).
type layout struct {
	files []file
	seen  map[string]bool
}

// Archive returns an OCI image layout as a tar archive. The image has one manifest per platform, and every platform
// has Mozilla's CA certificates in /etc/ssl/certs/ca-certificates.crt.
func Archive(name string, platforms []Platform) ([]byte, error) {
	l := layout{
		files: []file{{name: "oci-layout", data: []byte(`{"imageLayoutVersion":"1.0.0"}`), mode: 0o644}},
		seen:  map[string]bool{},
	}
	var manifests []descriptor
	for _, p := range platforms {
		m, err := l.addPlatform(p)
		if err != nil {
			return nil, err
		}
		manifests = append(manifests, m)
	}
	annotations := map[string]string{"io.containerd.image.name": name, "org.opencontainers.image.ref.name": name}
	top := manifests
	if len(manifests) == 1 {
		top[0].Annotations = annotations
	} else {
		const mediaType = "application/vnd.oci.image.index.v1+json"
		list, err := l.addJSON(mediaType, object{"schemaVersion": 2, "mediaType": mediaType, "manifests": manifests})
		if err != nil {
			return nil, err
		}
		list.Annotations = annotations
		top = []descriptor{list}
	}
	index, err := json.Marshal(object{"schemaVersion": 2, "manifests": top})
	if err != nil {
		return nil, err
	}
	return tarOf(append(l.files, file{name: "index.json", data: index, mode: 0o644}))
}

// addPlatform adds a platform's layer, configuration and manifest, and returns the manifest's descriptor.
func (l *layout) addPlatform(p Platform) (descriptor, error) {
	files := []file{
		// Container runtimes name namespaces /var/run/netns/NAME, so the link has to exist as it does on a host.
		{name: "var/run", link: "../run"},
		{name: "etc/ssl/certs/ca-certificates.crt", data: certificates(), mode: 0o644},
	}
	for _, program := range p.Programs {
		files = append(files, file{name: program.Name, data: program.Data, mode: 0o755})
	}
	rootfs, err := tarOf(files)
	if err != nil {
		return descriptor{}, err
	}
	packed, err := gzipped(rootfs)
	if err != nil {
		return descriptor{}, err
	}
	layer := l.add("application/vnd.oci.image.layer.v1.tar+gzip", packed)
	config, err := l.addJSON("application/vnd.oci.image.config.v1+json", object{
		"architecture": p.Arch, "os": "linux",
		"config": object{"Entrypoint": []string{"/" + path.Base(p.Programs[0].Name)}, "Env": []string{"PATH=/"}},
		"rootfs": object{"type": "layers", "diff_ids": []string{digest(rootfs)}},
	})
	if err != nil {
		return descriptor{}, err
	}
	const mediaType = "application/vnd.oci.image.manifest.v1+json"
	manifest, err := l.addJSON(mediaType, object{
		"schemaVersion": 2, "mediaType": mediaType, "config": config, "layers": []descriptor{layer},
	})
	manifest.Platform = map[string]string{"architecture": p.Arch, "os": "linux"}
	return manifest, err
}

// add stores a blob and returns its descriptor. Platforms share equal blobs.
func (l *layout) add(mediaType string, data []byte) descriptor {
	d := descriptor{MediaType: mediaType, Digest: digest(data), Size: len(data)}
	if !l.seen[d.Digest] {
		l.seen[d.Digest] = true
		l.files = append(l.files, file{name: "blobs/sha256/" + d.Digest[len("sha256:"):], data: data, mode: 0o644})
	}
	return d
}

func (l *layout) addJSON(mediaType string, v any) (descriptor, error) {
	data, err := json.Marshal(v)
	if err != nil {
		return descriptor{}, err
	}
	return l.add(mediaType, data), nil
}

func digest(data []byte) string {
	sum := sha256.Sum256(data)
	return "sha256:" + hex.EncodeToString(sum[:])
}

// certificates returns Mozilla's root certificates in PEM form. Roots with a constraint are left out, because a PEM
// file cannot express the constraint.
func certificates() []byte {
	var out bytes.Buffer
	for root := range bundle.Roots() {
		if root.Constraint == nil {
			_ = pem.Encode(&out, &pem.Block{Type: "CERTIFICATE", Bytes: root.Certificate}) // a Buffer accepts every write
		}
	}
	return out.Bytes()
}

// gzipped compresses without a time and without a name, so that equal data gives equal bytes.
func gzipped(data []byte) ([]byte, error) {
	var out bytes.Buffer
	w := gzip.NewWriter(&out)
	if _, err := w.Write(data); err != nil {
		return nil, err
	}
	err := w.Close()
	return out.Bytes(), err
}

type file struct {
	name string
	data []byte
	mode int64
	link string // target of a symbolic link
}

// tarOf packs files that belong to root. Their modification time is zero.
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
