// Package apitest runs a real Kubernetes API server with etcd and the
// controller manager for tests that need one. There are no nodes: pods are made
// and never run.
//
// The binaries are those of the folder that KUBEBUILDER_ASSETS names
// (go run . assets in test/cluster prints one). A package that uses it has
//
//	func TestMain(m *testing.M) { apitest.Main(m) }
//
// in a file with the build tag apiserver, and calls apitest.New in its tests.
package apitest
