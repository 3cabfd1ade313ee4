// Package e2e runs containers under containerd, Podman and nerdctl, and in Kubernetes, with our plugins. Each client
// runs on its own simulated host. The results are on the page docs/runtimes.md.
package e2e
