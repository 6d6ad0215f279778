package plugin

import (
	"bytes"
	"context"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/holdfast-db/holdfast/api/v1alpha1"
)

// oneCluster is an API server with one cluster. Its operator answers each request at
// once with a result; empty for not yet.
type oneCluster struct {
	client.Client
	cluster *v1alpha1.PostgresCluster
	result  string
	written map[string]string
}

func (o *oneCluster) Get(_ context.Context, key client.ObjectKey, obj client.Object, _ ...client.GetOption) error {
	c, is := obj.(*v1alpha1.PostgresCluster)
	if !is || key.Name != o.cluster.Name {
		return apierrors.NewNotFound(schema.GroupResource{Resource: "clusters"}, key.Name)
	}
	o.cluster.DeepCopyInto(c)
	return nil
}

func (o *oneCluster) Patch(_ context.Context, _ client.Object, patch client.Patch, _ ...client.PatchOption) error {
	body, err := patch.Data(nil)
	if err != nil {
		return err
	}
	var sent metav1.PartialObjectMetadata
	if err := json.Unmarshal(body, &sent); err != nil {
		return err
	}
	if sent.UID != o.cluster.UID {
		return apierrors.NewConflict(schema.GroupResource{}, o.cluster.Name, nil)
	}
	o.written = sent.Annotations
	for key, value := range sent.Annotations {
		id, target, _ := strings.Cut(value, "@")
		o.cluster.Status.Requests = []v1alpha1.RequestStatus{{Type: strings.TrimPrefix(key, "holdfast.dev/"), ID: id, Target: target, Result: o.result}}
	}
	return nil
}

func TestPrimaryRequests(t *testing.T) {
	cases := []struct {
		name, primary, result string
		args                  []string
		// annotation and target that are written; empty for none.
		annotation, target string
		prints, fails      string
	}{
		{"any member", "orders-0", "", []string{"switchover", "orders"}, "holdfast.dev/switchover", "", "pg/orders is to switch over from orders-0 to another member\n", ""},
		{"a member by its name", "orders-0", "", []string{"switchover", "pg/orders", "--to", "orders-1"}, "holdfast.dev/switchover", "orders-1", "pg/orders is to switch over from orders-0 to orders-1\n", ""},
		{"a member by its ordinal", "orders-0", "orders-1 leads since term 7", []string{"switchover", "orders", "--to", "1", "--wait"}, "holdfast.dev/switchover", "orders-1",
			"pg/orders is to switch over from orders-0 to orders-1\npg/orders: orders-1 leads since term 7\n", ""},
		{"it is refused", "orders-0", "refused: orders-1 does not stream", []string{"switchover", "orders", "--to", "1", "--wait"}, "holdfast.dev/switchover", "orders-1", "", "pg/orders: refused: orders-1 does not stream"},
		{"it is used up", "", "used up: orders-1 claimed the Lease by it and does not lead", []string{"promote", "orders", "1", "--force", "--wait"}, "holdfast.dev/promote", "orders-1", "", "pg/orders: used up: orders-1 claimed the Lease by it and does not lead"},
		{"no result in time", "orders-0", "", []string{"switchover", "orders", "--to", "1", "--wait", "--timeout", "1ns"}, "holdfast.dev/switchover", "orders-1", "", "no result after 1ns: orders-1 is to lead"},
		{"to the primary", "orders-0", "", []string{"switchover", "orders", "--to", "0"}, "", "", "", "pg/orders: orders-0 leads already"},
		{"to no member", "orders-0", "", []string{"switchover", "orders", "--to", "orders-7"}, "", "", "", `no member "orders-7"`},
		{"without a primary", "", "", []string{"switchover", "orders"}, "", "", "", "no member takes writes now"},
		{"promotion without --force", "", "", []string{"promote", "orders", "orders-1"}, "", "", "", "orders-1 would lead with what it has, and acknowledged writes that it lacks are lost; if you accept that, repeat the command with --force"},
		{"promotion", "", "orders-1 was promoted with what it had, on timeline 3", []string{"promote", "orders", "orders-1", "--force", "--wait"}, "holdfast.dev/promote", "orders-1",
			"pg/orders is to be led by orders-1, with what it has\npg/orders: orders-1 was promoted with what it had, on timeline 3\n", ""},
		{"promotion that is not needed", "", "not needed: orders-0 leads", []string{"promote", "orders", "orders-1", "--force", "--wait"}, "holdfast.dev/promote", "orders-1", "", "not needed: orders-0 leads"},
		{"promotion beside a primary", "orders-0", "", []string{"promote", "orders", "orders-1", "--force"}, "", "", "", "orders-0 takes writes, so there is no need to lose any: use kubectl holdfast switchover orders -n shop --to orders-1"},
		{"a volume is discarded", "orders-0", "the volume of orders-1 is gone", []string{"discard-volume", "orders", "1", "--force", "--wait"}, "holdfast.dev/discard-volume", "uid-1",
			"pg/orders is to discard the volume of orders-1\npg/orders: the volume of orders-1 is gone\n", ""},
		{"a volume without --force", "orders-0", "", []string{"discard-volume", "orders", "orders-1"}, "", "", "", "all data on the volume of orders-1 would be deleted"},
		{"the primary's volume", "orders-0", "", []string{"discard-volume", "orders", "orders-0", "--force"}, "", "", "", "orders-0 takes writes: its volume is not discarded"},
		{"a member without a volume", "orders-0", "", []string{"discard-volume", "orders", "orders-2", "--force"}, "", "", "", "status shows no volume of orders-2"},
	}
	for _, tc := range cases {
		t.Run(tc.name, func(t *testing.T) {
			c := &v1alpha1.PostgresCluster{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "orders", UID: "a"}}
			c.Status.Primary = tc.primary
			c.Status.Members = []v1alpha1.MemberStatus{{Name: "orders-0", VolumeUID: "uid-0"}, {Name: "orders-1", VolumeUID: "uid-1"}, {Name: "orders-2"}}
			server := &oneCluster{cluster: c, result: tc.result}
			var out bytes.Buffer
			root := NewRootCommand("test")
			root.ResetCommands()
			root.AddCommand(verbCommands(&session{client: server, namespace: "shop"})...)
			root.SetArgs(tc.args)
			root.SetOut(&out)
			root.SetErr(&out)
			err := root.Execute()
			if tc.fails == "" && (err != nil || out.String() != tc.prints) || tc.fails != "" && (err == nil || !strings.Contains(err.Error(), tc.fails)) {
				t.Errorf("printed %q, error %v; want %q, %q", out.String(), err, tc.prints, tc.fails)
			}
			id, target, _ := strings.Cut(server.written[tc.annotation], "@")
			if len(server.written) > 0 != (tc.annotation != "") || tc.annotation != "" && (id == "" || target != tc.target) {
				t.Errorf("annotations %v, want %s for %q", server.written, tc.annotation, tc.target)
			}
		})
	}
}

// A request that is not accepted yet says what it waits for.
func TestPrimaryRequestWaits(t *testing.T) {
	c := &v1alpha1.PostgresCluster{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "orders"}}
	if _, waits, err := judgeResult(c, "switchover", "go"); err != nil || waits != "the operator has not accepted the request yet" {
		t.Errorf("%q, %v", waits, err)
	}
	c.Spec.Suspend = true
	if _, _, err := judgeResult(c, "switchover", "go"); err == nil || !strings.Contains(err.Error(), "kubectl holdfast resume orders -n shop") {
		t.Errorf("suspended: %v", err)
	}
}

// The page shows what the requests print, with the results that an operator answers.
func TestPagePrintsPrimaryRequests(t *testing.T) {
	text, err := os.ReadFile(filepath.Join("..", "..", "docs", "reference", "kubectl-holdfast.md"))
	if err != nil {
		t.Fatal(err)
	}
	blocks := strings.Split(string(text), "<!-- run: TestPagePrintsPrimaryRequests -->\n```\n$ kubectl holdfast ")[1:]
	answers := []struct{ primary, result string }{
		{"orders-0", "orders-1 leads since term 7"},
		{"orders-1", "refused: orders-0 does not stream from the primary: wait until it does, then request it with another ID"},
		{"", ""},
	}
	if len(blocks) != len(answers) {
		t.Fatalf("%d blocks, want %d", len(blocks), len(answers))
	}
	for i, block := range blocks {
		block, _, _ = strings.Cut(block, "\n```")
		command, want, _ := strings.Cut(block, "\n")
		if got := runOnce(t, answers[i].primary, answers[i].result, strings.Fields(command)); got != want {
			t.Errorf("%s prints\n%s\nand the page shows\n%s", command, got, want)
		}
	}
}

// runOnce is what a command prints of a cluster orders, with its error as main prints it.
func runOnce(t *testing.T, primary, result string, args []string) string {
	t.Helper()
	c := &v1alpha1.PostgresCluster{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "orders", UID: "a"}}
	c.Status.Primary = primary
	c.Status.Members = []v1alpha1.MemberStatus{{Name: "orders-0"}, {Name: "orders-1"}}
	var out bytes.Buffer
	root := NewRootCommand("test")
	root.ResetCommands()
	root.AddCommand(verbCommands(&session{client: &oneCluster{cluster: c, result: result}, namespace: "shop"})...)
	root.SetArgs(args)
	root.SetOut(&out)
	root.SetErr(&out)
	if err := root.Execute(); err != nil {
		out.WriteString("holdfast: " + err.Error())
	}
	return strings.TrimSpace(out.String())
}
