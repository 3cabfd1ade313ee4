package e2e

import (
	"crypto/rand"
	"crypto/rsa"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"fmt"
	"math/big"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/fairlead/fairlead/internal/built"
	"github.com/fairlead/fairlead/internal/kubetest"
)

// agnhostTools are the programs that Kubernetes' own tests run in their image agnhost. Debian packages have them.
const agnhostTools = "bash sh cat conntrack cp curl cut date dd dig echo env expr getent grep head hostname id ip ls mkdir mktemp nc netstat nslookup " +
	"printf ps rm sed seq sleep sort ss stat tail tee test timeout touch tr true uname wc wget which"

const (
	suiteImages   = "registry.k8s.io/e2e-test-images/"
	pauseImage    = "registry.k8s.io/pause:3.10.2"
	iptablesImage = "registry.k8s.io/build-image/distroless-iptables:v0.9.9"
)

// suiteImageList returns the images of Kubernetes' own tests, under the names that they ask for. nginx is only a server on
// port 80 there, which agnhost is here.
func suiteImageList(t *testing.T) []image {
	t.Helper()
	agnhost := agnhostImage(t)
	nginx := agnhost
	nginx.names, nginx.cmd = []string{suiteImages + "nginx:1.27.0-2", suiteImages + "nginx:1.28.0-2"}, []string{"netexec", "--http-port=80"}
	return []image{agnhost, nginx, busyboxImage(t), invalidPacketsImage(t)}
}

// invalidPacketsImage returns the server that sends packets outside of its TCP connections' windows (Kubernetes issue 74839).
func invalidPacketsImage(t *testing.T) image {
	t.Helper()
	raw, err := os.ReadFile(kubetest.Program(t, "test/images/regression-issue-74839"))
	if err != nil {
		t.Fatal(err)
	}
	return image{names: []string{suiteImages + "regression-issue-74839:1.5"}, entrypoint: []string{"/server"}, files: map[string][]byte{"server": raw}}
}

// busyboxImage returns busybox with a link for each of its commands.
func busyboxImage(t *testing.T) image {
	t.Helper()
	path, err := exec.LookPath("busybox")
	if err != nil {
		t.Fatalf("%v: make conformance installs it", err)
	}
	raw, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	i := image{
		names: []string{suiteImages + "busybox:1.36.1-1", suiteImages + "busybox:1.37.0-2"}, cmd: []string{"sh"},
		files: map[string][]byte{"bin/busybox": raw, "etc/passwd": []byte("root:x:0:0:root:/:/bin/sh\n"), "etc/group": []byte("root:x:0:\n"), "tmp/.keep": nil},
		links: map[string]string{},
	}
	out, err := exec.Command(path, "--list").Output()
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range strings.Fields(string(out)) {
		if name != "busybox" {
			i.links["bin/"+name] = "busybox"
		}
	}
	return i
}

// agnhostImage returns the image of servers and clients, with the tools that the tests run in it.
func agnhostImage(t *testing.T) image {
	t.Helper()
	i := image{
		names: []string{
			suiteImages + "agnhost:2.66.1", suiteImages + "agnhost:2.55", suiteImages + "agnhost:2.53", suiteImages + "agnhost:2.45", suiteImages + "glibc-dns-testing:2.1.1", pauseImage, iptablesImage,
		},
		entrypoint: []string{"/agnhost"}, cmd: []string{"pause"},
		files: map[string][]byte{
			"etc/passwd": []byte("root:x:0:0:root:/:/bin/bash\n"), "etc/group": []byte("root:x:0:\n"),
			"etc/nsswitch.conf": []byte("hosts: files dns\n"), "tmp/.keep": nil, "uploads/.keep": nil,
		},
	}
	i.add(t, kubetest.Program(t, "test/images/agnhost"), "agnhost")
	i.add(t, corednsProgram(t), "coredns")                              // of DNS servers outside of the cluster
	i.files["localhost.crt"], i.files["localhost.key"] = certificate(t) // of its servers with TLS
	i.addTools(t, agnhostTools)
	sleeper := busyboxImage(t)
	sleeper.cmd = []string{"sleep", "86400"}
	addToRegistry(i.files, "pause", "testing", sleeper)
	return i
}

// add adds a file of the machine to an image.
func (i image) add(t *testing.T, path, as string) {
	t.Helper()
	raw, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	i.files[strings.TrimPrefix(as, "/")] = raw
}

// addTools adds programs of the machine to an image, with their libraries.
func (i image) addTools(t *testing.T, names string) {
	t.Helper()
	for _, name := range strings.Fields(names) {
		path, err := exec.LookPath(name)
		if err != nil {
			t.Fatalf("%s is missing: make conformance installs it", name)
		}
		i.add(t, path, "bin/"+name)
		for _, l := range neededLibraries(t, path) {
			if _, has := i.files[strings.TrimPrefix(l, "/")]; !has {
				i.add(t, l, l)
			}
		}
	}
}

// addToRegistry adds an image to the files from which agnhost serves a registry.
func addToRegistry(files map[string][]byte, name, tag string, i image) {
	blobs, manifest := i.blobs()
	for digest, raw := range blobs {
		kind := "blobs"
		if "sha256:"+digest == manifest["digest"] {
			kind = "manifests"
		}
		files["var/registry/"+name+"/"+kind+"/sha256/"+digest[:2]+"/"+digest+"/data"] = raw
	}
	files["var/registry/"+name+"/manifests/"+tag] = []byte(manifest["digest"].(string))
}

// certificate returns a certificate for localhost, and its key, in PEM.
func certificate(t *testing.T) (cert, key []byte) {
	t.Helper()
	private, err := rsa.GenerateKey(rand.Reader, 2048)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "localhost"}, DNSNames: []string{"localhost"}, NotAfter: time.Now().AddDate(1, 0, 0),
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, &private.PublicKey, private)
	if err != nil {
		t.Fatal(err)
	}
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}),
		pem.EncodeToMemory(&pem.Block{Type: "RSA PRIVATE KEY", Bytes: x509.MarshalPKCS1PrivateKey(private)})
}

var libraryPath = regexp.MustCompile(`(?m)(/\S+) \(0x`)

// neededLibraries returns the paths of the shared libraries, and of the loader, of a program.
func neededLibraries(t *testing.T, path string) (list []string) {
	t.Helper()
	out, err := exec.Command("ldd", path).CombinedOutput()
	if _, static := errors.AsType[*exec.ExitError](err); static && strings.Contains(string(out), "not a dynamic executable") {
		return nil
	}
	if err != nil {
		t.Fatalf("ldd %s: %v: %s", path, err, out)
	}
	for _, m := range libraryPath.FindAllStringSubmatch(string(out), -1) {
		list = append(list, m[1])
	}
	return list
}

const (
	corednsVersion = "1.15.0"
	corednsName    = "localhost/coredns:" + corednsVersion
	dnsIP, dnsIP6  = "10.96.0.10", "fd00:96::a"
)

func corednsImage(t *testing.T) image {
	t.Helper()
	raw, err := os.ReadFile(corednsProgram(t))
	if err != nil {
		t.Fatal(err)
	}
	return image{names: []string{corednsName}, files: map[string][]byte{"coredns": raw}, entrypoint: []string{"/coredns"}}
}

func corednsProgram(t *testing.T) string {
	t.Helper()
	path, err := built.Program("coredns-"+corednsVersion, "coredns", built.Install("github.com/coredns/coredns@v"+corednsVersion, "-s -w"))
	if err != nil {
		t.Fatal(err)
	}
	return path
}

// load imports an image into the containerd of every node.
func (c *cluster) load(t *testing.T, i image) {
	t.Helper()
	name := fmt.Sprintf("image-%d.tar", len(c.loaded))
	c.loaded = append(c.loaded, name)
	if err := i.write(filepath.Join(c.dir, name)); err != nil {
		t.Fatal(err)
	}
	for _, n := range c.hosts {
		n.shell(t, "ctr -n k8s.io images import /mnt/e2e/"+name)
	}
	if err := os.Remove(filepath.Join(c.dir, name)); err != nil {
		t.Error(err)
	}
}

// dns returns the address of the DNS server's Service.
func (c *cluster) dns() string {
	if c.family == ipv6 {
		return dnsIP6
	}
	return dnsIP
}

// startDNS deploys CoreDNS as the cluster's DNS server.
func (c *cluster) startDNS(t *testing.T) {
	t.Helper()
	c.load(t, corednsImage(t))
	c.apply(t, "coredns.yaml", map[string]string{"COREDNS": corednsName, "DNS": c.dns()})
	c.mustKubectl(t, "-n", "kube-system", "rollout", "status", "deployment/coredns", "--timeout=110s")
}
