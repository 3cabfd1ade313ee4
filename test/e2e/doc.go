// Package e2e runs real containers under real runtimes (containerd, Podman and
// nerdctl), with our plugins, in hosts of their own: the page docs/runtimes.md.
package e2e
