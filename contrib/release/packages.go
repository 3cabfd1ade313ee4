package main

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"fmt"
	"os"
	"path/filepath"

	"github.com/goreleaser/nfpm/v2"
	_ "github.com/goreleaser/nfpm/v2/deb" // registers the packager
	"github.com/goreleaser/nfpm/v2/files"
	_ "github.com/goreleaser/nfpm/v2/rpm" // registers the packager

	"github.com/fairlead/fairlead/internal/ociimage"
)

// writePackages writes the tar.gz, the .deb and the .rpm of every architecture.
func (r *release) writePackages() error {
	for _, arch := range r.archs {
		if err := r.writeTarball(arch); err != nil {
			return err
		}
		for _, format := range []string{"deb", "rpm"} {
			if err := r.writePackage(arch, format); err != nil {
				return fmt.Errorf("%s for %s: %w", format, arch, err)
			}
		}
	}
	return nil
}

// writeTarball writes an archive that is unpacked in /usr/local.
func (r *release) writeTarball(arch string) error {
	tree, err := r.tree(arch, "/usr/local")
	if err != nil {
		return err
	}
	var out bytes.Buffer
	zip, _ := gzip.NewWriterLevel(&out, gzip.BestCompression) // the level is valid
	w := tar.NewWriter(zip)
	name := fmt.Sprintf("fairlead-%s-linux-%s", r.version, arch)
	for _, e := range tree {
		h := tar.Header{
			Name: name + "/" + e.path, Mode: int64(e.mode), Size: int64(len(e.data)), ModTime: r.time,
			Typeflag: tar.TypeReg, Format: tar.FormatGNU, Uname: "root", Gname: "root",
		}
		if e.link != "" {
			h.Typeflag, h.Linkname = tar.TypeSymlink, e.link
		}
		if err := w.WriteHeader(&h); err != nil {
			return err
		}
		if _, err := w.Write(e.data); err != nil {
			return err
		}
	}
	if err := w.Close(); err != nil {
		return err
	}
	if err := zip.Close(); err != nil {
		return err
	}
	return r.write(name+".tar.gz", out.Bytes())
}

// writePackage writes a .deb or an .rpm. Neither changes a plugin directory: "fairlead install" does that.
func (r *release) writePackage(arch, format string) error {
	tree, err := r.tree(arch, "/usr")
	if err != nil {
		return err
	}
	contents, err := r.contents(arch, format, tree)
	if err != nil {
		return err
	}
	scripts := filepath.Join(r.root, "contrib/release/scripts")
	info := nfpm.WithDefaults(&nfpm.Info{
		Name: "fairlead", Arch: arch, Platform: "linux", Version: r.version,
		Section: "net", Priority: "optional", Maintainer: "The Fairlead developers <developers@fairlead.invalid>",
		License: "Apache-2.0", Homepage: "https://github.com/fairlead/fairlead", MTime: r.time, DisableGlobbing: true,
		Description: "container networks: CNI plugins, their command and a node agent\n" +
			"Fairlead replaces the reference CNI plugins, name by name and key by key: bridge,\n" +
			"ptp, macvlan, ipvlan, portmap, bandwidth, firewall, host-local, dhcp and others.\n" +
			"\"fairlead install\" puts them where container runtimes look. \"fairlead agent\"\n" +
			"connects the containers of several hosts.",
		Overridables: nfpm.Overridables{
			Recommends: []string{"nftables"}, Suggests: []string{"containerd", "podman"}, Contents: contents,
			Scripts: nfpm.Scripts{
				PostInstall: filepath.Join(scripts, "postinstall"),
				PreRemove:   filepath.Join(scripts, "preremove"),
				PostRemove:  filepath.Join(scripts, "postremove"),
			},
			RPM: nfpm.RPM{BuildHost: "localhost", Group: "System Environment/Daemons", Summary: "CNI plugins, their command and a node agent"},
		},
	})
	if err := nfpm.PrepareForPackager(info, format); err != nil {
		return err
	}
	packager, err := nfpm.Get(format)
	if err != nil {
		return err
	}
	var out bytes.Buffer
	if err := packager.Package(info, &out); err != nil {
		return err
	}
	return r.write(packager.ConventionalFileName(info), out.Bytes())
}

// contents copies a tree to the staging directory, because nfpm reads files, and lists it for nfpm.
func (r *release) contents(arch, format string, tree []entry) (files.Contents, error) {
	dir := filepath.Join(r.stage, format+"-"+arch)
	var list files.Contents
	for _, e := range tree {
		if e.link != "" {
			list = append(list, &files.Content{Source: e.link, Destination: "/usr/" + e.path, Type: files.TypeSymlink})
			continue
		}
		file := filepath.Join(dir, e.path)
		if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
			return nil, err
		}
		if err := os.WriteFile(file, e.data, e.mode); err != nil {
			return nil, err
		}
		list = append(list, &files.Content{
			Source: file, Destination: "/usr/" + e.path,
			FileInfo: &files.ContentFileInfo{Owner: "root", Group: "root", Mode: e.mode, MTime: r.time},
		})
	}
	return list, nil
}

// writeImage writes one OCI image for all architectures.
func (r *release) writeImage() error {
	var platforms []ociimage.Platform
	for _, arch := range r.archs {
		p := ociimage.Platform{Arch: arch}
		for _, name := range programs {
			data, err := os.ReadFile(r.program(arch, name))
			if err != nil {
				return err
			}
			p.Programs = append(p.Programs, ociimage.Program{Name: name, Data: data})
		}
		platforms = append(platforms, p)
	}
	name, err := r.imageName()
	if err != nil {
		return err
	}
	archive, err := ociimage.Archive(name, platforms)
	if err != nil {
		return err
	}
	return r.write("fairlead-"+r.version+"-image.tar", archive)
}
