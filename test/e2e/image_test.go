package e2e

import (
	"archive/tar"
	"bytes"
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"runtime"
	"slices"
)

// imageName is the image of every container, including the pause containers. It contains the probe, which sleeps by
// default.
const imageName = "localhost/fairlead/probe:1"

// image is a container image of one layer.
type image struct {
	names      []string
	files      map[string][]byte // by path without the first slash
	links      map[string]string // symbolic links: path to target
	entrypoint []string
	cmd        []string
}

// probeImage returns the image of the probe.
func probeImage(probe string) (image, error) {
	program, err := os.ReadFile(probe)
	return image{
		names:      []string{imageName},
		files:      map[string][]byte{"probe": program, "etc/passwd": []byte("root:x:0:0:root:/:/probe\n"), "etc/group": []byte("root:x:0:\n")},
		entrypoint: []string{"/probe"}, cmd: []string{"sleep"},
	}, err
}

// write writes a tar archive of an OCI image layout (OCI image specification 1.0), so that the tests need neither a
// registry nor a builder.
func (i image) write(file string) error {
	blobs, manifest := i.blobs()
	files := map[string][]byte{"oci-layout": []byte(`{"imageLayoutVersion":"1.0.0"}`)}
	for digest, raw := range blobs {
		files["blobs/sha256/"+digest] = raw
	}
	var manifests []any
	for _, name := range i.names {
		m := maps.Clone(manifest)
		m["annotations"] = map[string]string{"io.containerd.image.name": name, "org.opencontainers.image.ref.name": name}
		manifests = append(manifests, m)
	}
	files["index.json"] = encode(map[string]any{"schemaVersion": 2, "manifests": manifests})
	return os.WriteFile(file, archive(files, nil), 0o644)
}

// blobs returns the image's layer, configuration and manifest by the hexadecimal digits of their digests, and what refers
// to the manifest.
func (i image) blobs() (blobs map[string][]byte, manifest map[string]any) {
	blobs = map[string][]byte{}
	add := func(kind string, raw []byte) map[string]any {
		digest := fmt.Sprintf("%x", sha256.Sum256(raw))
		blobs[digest] = raw
		return map[string]any{"mediaType": "application/vnd.oci.image." + kind, "digest": "sha256:" + digest, "size": len(raw)}
	}
	layer := add("layer.v1.tar", archive(i.files, i.links))
	config := add("config.v1+json", encode(map[string]any{
		"architecture": runtime.GOARCH, "os": "linux",
		"config": map[string]any{"Entrypoint": i.entrypoint, "Cmd": i.cmd, "Env": []string{"PATH=/usr/sbin:/usr/bin:/sbin:/bin:/"}},
		"rootfs": map[string]any{"type": "layers", "diff_ids": []any{layer["digest"]}},
	}))
	manifest = add("manifest.v1+json", encode(map[string]any{
		"schemaVersion": 2, "mediaType": "application/vnd.oci.image.manifest.v1+json", "config": config, "layers": []any{layer},
	}))
	return blobs, manifest
}

func encode(v any) []byte {
	raw, err := json.Marshal(v)
	if err != nil {
		panic(err) // cannot happen: v contains only strings and numbers
	}
	return raw
}

func archive(files map[string][]byte, links map[string]string) []byte {
	var b bytes.Buffer
	w := tar.NewWriter(&b)
	for _, name := range slices.Sorted(maps.Keys(files)) {
		raw := files[name]
		if err := w.WriteHeader(&tar.Header{Name: name, Mode: 0o755, Size: int64(len(raw)), Typeflag: tar.TypeReg}); err != nil {
			panic(err) // cannot happen: writes go to memory
		}
		if _, err := w.Write(raw); err != nil {
			panic(err)
		}
	}
	for _, name := range slices.Sorted(maps.Keys(links)) {
		if err := w.WriteHeader(&tar.Header{Name: name, Linkname: links[name], Typeflag: tar.TypeSymlink, Mode: 0o777}); err != nil {
			panic(err) // cannot happen: writes go to memory
		}
	}
	if err := w.Close(); err != nil {
		panic(err)
	}
	return b.Bytes()
}
