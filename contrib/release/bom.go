package main

import (
	"bytes"
	"runtime"
	"strings"
	"time"

	cdx "github.com/CycloneDX/cyclonedx-go"
)

// writeBOM writes the software bill of materials: Fairlead, the Go standard library and every linked module with its
// licences. The checksum of go.sum is a property, because it is no plain digest of a file.
func (r *release) writeBOM() error {
	modules, err := r.modules()
	if err != nil {
		return err
	}
	self := "pkg:golang/github.com/fairlead/fairlead@v" + r.version
	bom := cdx.NewBOM()
	bom.Metadata = &cdx.Metadata{
		Timestamp: r.time.Format(time.RFC3339),
		Component: &cdx.Component{
			BOMRef: self, Type: cdx.ComponentTypeApplication, Name: "fairlead", Version: r.version, PackageURL: self,
			Licenses: licenceChoices([]string{"Apache-2.0"}),
		},
	}
	goVersion := strings.TrimPrefix(runtime.Version(), "go")
	components := []cdx.Component{{
		BOMRef: "pkg:golang/std@" + goVersion, Type: cdx.ComponentTypeLibrary, Name: "std", Version: goVersion,
		PackageURL: "pkg:golang/std@" + goVersion, Licenses: licenceChoices([]string{"BSD-3-Clause"}),
	}}
	for _, m := range modules {
		url := "pkg:golang/" + m.Path + "@" + m.Version
		components = append(components, cdx.Component{
			BOMRef: url, Type: cdx.ComponentTypeLibrary, Name: m.Path, Version: m.Version, PackageURL: url,
			Licenses:   licenceChoices(m.licences),
			Properties: &[]cdx.Property{{Name: "go.sum", Value: m.Sum}},
		})
	}
	bom.Components = &components
	var refs []string
	for _, c := range components {
		refs = append(refs, c.BOMRef)
	}
	bom.Dependencies = &[]cdx.Dependency{{Ref: self, Dependencies: &refs}}
	var out bytes.Buffer
	if err := cdx.NewBOMEncoder(&out, cdx.BOMFileFormatJSON).SetPretty(true).Encode(bom); err != nil {
		return err
	}
	return r.write("fairlead-"+r.version+".cdx.json", out.Bytes())
}

func licenceChoices(ids []string) *cdx.Licenses {
	var list cdx.Licenses
	for _, id := range ids {
		list = append(list, cdx.LicenseChoice{License: &cdx.License{ID: id}})
	}
	return &list
}
