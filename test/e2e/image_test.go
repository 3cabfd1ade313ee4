package e2e

import (
	"archive/tar"
	"bytes"
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"os"
	"runtime"
)

// imageName is the image of every container, including the pause containers. It contains the probe, which sleeps by
// default.
const imageName = "localhost/fairlead/probe:1"

// writeImage writes a tar archive of an OCI image layout with one layer (OCI image specification 1.0), so that the
// tests need neither a registry nor a builder.
func writeImage(file, probe string) error {
	program, err := os.ReadFile(probe)
	if err != nil {
		return err
	}
	layer := archive(map[string][]byte{"probe": program, "etc/passwd": []byte("root:x:0:0:root:/:/probe\n"), "etc/group": []byte("root:x:0:\n")})
	blobs := map[string][]byte{"oci-layout": []byte(`{"imageLayoutVersion":"1.0.0"}`)}
	add := func(kind string, raw []byte) map[string]any {
		digest := fmt.Sprintf("%x", sha256.Sum256(raw))
		blobs["blobs/sha256/"+digest] = raw
		return map[string]any{"mediaType": "application/vnd.oci.image." + kind, "digest": "sha256:" + digest, "size": len(raw)}
	}
	layerRef := add("layer.v1.tar", layer)
	config := add("config.v1+json", encode(map[string]any{
		"architecture": runtime.GOARCH, "os": "linux",
		"config": map[string]any{"Entrypoint": []string{"/probe"}, "Cmd": []string{"sleep"}},
		"rootfs": map[string]any{"type": "layers", "diff_ids": []any{layerRef["digest"]}},
	}))
	manifest := add("manifest.v1+json", encode(map[string]any{
		"schemaVersion": 2, "mediaType": "application/vnd.oci.image.manifest.v1+json", "config": config, "layers": []any{layerRef},
	}))
	manifest["annotations"] = map[string]string{"io.containerd.image.name": imageName, "org.opencontainers.image.ref.name": imageName}
	blobs["index.json"] = encode(map[string]any{"schemaVersion": 2, "manifests": []any{manifest}})
	return os.WriteFile(file, archive(blobs), 0o644)
}

func encode(v any) []byte {
	raw, err := json.Marshal(v)
	if err != nil {
		panic(err) // cannot happen: v contains only strings and numbers
	}
	return raw
}

func archive(files map[string][]byte) []byte {
	var b bytes.Buffer
	w := tar.NewWriter(&b)
	for name, raw := range files {
		if err := w.WriteHeader(&tar.Header{Name: name, Mode: 0o755, Size: int64(len(raw)), Typeflag: tar.TypeReg}); err != nil {
			panic(err) // cannot happen: writes go to memory
		}
		if _, err := w.Write(raw); err != nil {
			panic(err)
		}
	}
	if err := w.Close(); err != nil {
		panic(err)
	}
	return b.Bytes()
}
