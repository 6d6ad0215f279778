// Package e2e tests Holdfast on a real cluster with real databases: what only
// a kernel, a kubelet and a database can prove.
//
// What holds for every kind of cluster is tested by the same code: a kind is a
// description (kinds_test.go), and a test of it has its prefix in the name.
//
// Tests run side by side: those that leave the installed operator alone in
// TestTogether, those that stop one or count its requests in TestOperators, each
// with an operator of its own.
//
// With the build tag e2e it runs the acceptance tests, with the tag soak the
// long runs. KUBECONFIG names the cluster (default: the one of test/cluster);
// the operator must be installed there. HOLDFAST_E2E_KEEP=1 keeps the
// namespaces of failed tests, and HOLDFAST_E2E_DUMP names the folder for what
// is written down about them.
package e2e
