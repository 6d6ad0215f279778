package plan

import (
	"math/big"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/holdfast-db/holdfast/internal/engine/memberset"
	"github.com/holdfast-db/holdfast/internal/forecast"
)

func TestPricesAreRead(t *testing.T) {
	p, err := ReadPrices(strings.NewReader("currency: USD\nvcpuHour: 0.1\nmemoryGiBHour: 1e-2\nstorageGiBMonth: {ssd: 0.10, tape: 0}\ndefaultStorageClass: ssd\n"), "prices.yaml")
	if err != nil {
		t.Fatal(err)
	}
	got := map[string]string{"vcpu": p.vcpuHour.String(), "memory": p.memoryHour.String(), "ssd": p.storageMonth["ssd"].String(), "tape": p.storageMonth["tape"].String()}
	want := map[string]string{"vcpu": "1/10", "memory": "1/100", "ssd": "1/10", "tape": "0/1"}
	if diff := cmp.Diff(want, got); diff != "" || p.currency != "USD" || p.defaultClass != "ssd" {
		t.Errorf("%+v (-want +got):\n%s", p, diff)
	}
}

// Each error has the field, and what to write in it.
func TestBadPricesAreRefused(t *testing.T) {
	const good = "currency: EUR\nvcpuHour: 1\n"
	for text, want := range map[string]string{
		"":                                                "currency is missing: write its three capital letters",
		"vcpuHour: 1":                                     "currency is missing",
		"currency: EUR":                                   "it has no price: write vcpuHour, memoryGiBHour or storageGiBMonth",
		"currency: EUR\nstorageGiBMonth: {}":              "it has no price",
		"currency: euro\nvcpuHour: 1":                     "currency: euro is none: write its three capital letters, such as EUR",
		"currency: 1\nvcpuHour: 1":                        "currency: 1 is none",
		"currency: EUR\nvcpuHour: cheap":                  "vcpuHour: cheap is no number: write, without quotes, the price of one vCPU for one hour, such as 0.031",
		"currency: EUR\nvcpuHour: \"0.1\"":                "without quotes",
		"currency: EUR\nvcpuHour: 0,1":                    "vcpuHour: 0,1 is no number",
		"currency: EUR\nvcpuHour:":                        "vcpuHour: <nil> is no number",
		"currency: EUR\nvcpuHour: -1":                     "vcpuHour: -1 is not from 0 to 1000000",
		"currency: EUR\nvcpuHour: 1e300":                  "is not from 0 to 1000000",
		"currency: EUR\nvcpuHour: .inf":                   "prices.yaml: ",
		"currency: EUR\nvcpuHour: .nan":                   "prices.yaml: ",
		"currency: EUR\nmemoryGiBHour: [1]":               "memoryGiBHour: [1] is no number: write, without quotes, the price of one GiB of memory for one hour",
		good + "storageGiBMonth: 0.1":                     "storageGiBMonth: 0.1 is no list of storage classes: write a price below the name of each",
		good + "storageGiBMonth: {ssd: {price: 1}}":       "storageGiBMonth.ssd: map[price:1] is no number",
		good + "defaultStorageClass: ssd":                 "defaultStorageClass: ssd has no price: add it below storageGiBMonth",
		good + "defaultStorageClass: 7":                   "defaultStorageClass: 7 is no name",
		good + "cpu: 1":                                   "cpu: this field is not known: write currency, vcpuHour",
		good + "vcpuHour: 2":                              "prices.yaml: it is no YAML or JSON",
		"- a\n- b":                                        "it has no fields: write currency",
		"just text":                                       "it has no fields",
		"a: [":                                            "it is no YAML or JSON",
		"currency: EUR\n#" + strings.Repeat("x", 1<<20+1): "is no price file",
	} {
		_, err := ReadPrices(strings.NewReader(text), "prices.yaml")
		if err == nil || !strings.HasPrefix(err.Error(), "prices.yaml: ") || !strings.Contains(err.Error(), want) {
			t.Errorf("%.60q: %v, want %q", text, err, want)
		}
	}
}

func readPrices(t *testing.T, text string) *Prices {
	t.Helper()
	p, err := ReadPrices(strings.NewReader(text), "prices.yaml")
	if err != nil {
		t.Fatal(err)
	}
	return p
}

func containers(asks ...corev1.ResourceRequirements) (all []corev1.Container) {
	for _, a := range asks {
		all = append(all, corev1.Container{Resources: a})
	}
	return all
}

func list(cpu, memory string) corev1.ResourceList {
	l := corev1.ResourceList{}
	if cpu != "" {
		l[corev1.ResourceCPU] = resource.MustParse(cpu)
	}
	if memory != "" {
		l[corev1.ResourceMemory] = resource.MustParse(memory)
	}
	return l
}

// A limit stands for a request that is not set, as the API server takes it.
func TestDemandOfPods(t *testing.T) {
	d := demand{unset: map[corev1.ResourceName][]string{}}
	d.addPod("a", containers(corev1.ResourceRequirements{Requests: list("250m", "1Gi"), Limits: list("2", "2Gi")}, corev1.ResourceRequirements{Requests: list("250m", "1Gi")}))
	d.addPod("b", containers(corev1.ResourceRequirements{Requests: list("", "1Gi"), Limits: list("1", "")}))
	d.addPod("c", containers(corev1.ResourceRequirements{Requests: list("1", "")}))
	if d.milliCPU != 2500 || d.memory != 3<<30 {
		t.Errorf("%d milli CPU, %d bytes", d.milliCPU, d.memory)
	}
	if diff := cmp.Diff(map[corev1.ResourceName][]string{corev1.ResourceMemory: {"c"}}, d.unset); diff != "" {
		t.Errorf("unset (-want +got):\n%s", diff)
	}
}

// What admission adds to a pod is not what the cluster asks for: the pods that follow look
// different, and that is no saving.
func TestDemandIsThatOfTheTemplate(t *testing.T) {
	running := &corev1.Pod{}
	running.Name = "orders-0"
	running.Spec.Containers = containers(corev1.ResourceRequirements{Requests: list("1", "1Gi")}, corev1.ResourceRequirements{Requests: list("2", "2Gi")})
	set := &appsv1.StatefulSet{}
	set.Spec.Template.Spec.Containers = containers(corev1.ResourceRequirements{Requests: list("1", "1Gi")})
	w := &forecast.World{Observed: &memberset.Observation{StatefulSet: set, Pods: map[int]*corev1.Pod{0: running}}}
	if d := demandOf(w); d.milliCPU != 1000 || d.memory != 1<<30 {
		t.Errorf("%d milli CPU, %d bytes", d.milliCPU, d.memory)
	}
}

// A deleted cluster costs what its volumes do that stay, and nothing for those that go.
func TestDemandAfterDeletion(t *testing.T) {
	volume := func(name string) *corev1.PersistentVolumeClaim {
		v := &corev1.PersistentVolumeClaim{}
		v.Name = name
		v.Spec.Resources.Requests = corev1.ResourceList{corev1.ResourceStorage: resource.MustParse("1Gi")}
		return v
	}
	w := &forecast.World{Observed: &memberset.Observation{
		Volumes: map[int]*corev1.PersistentVolumeClaim{0: volume("data-orders-0"), 1: volume("data-orders-1")}, BackupVolume: volume("orders-backups"),
	}}
	for gone, want := range map[string]int64{"": 3 << 30, "data-orders-1": 2 << 30, "orders-backups": 2 << 30} {
		d := demandAfter(w, []forecast.Step{{Kind: forecast.ClusterDeleted, Volumes: []string{"data-orders-0"}}, {Kind: forecast.VolumeDeleted, Volumes: []string{gone}}})
		if d.storage[""] != want || d.milliCPU != 0 {
			t.Errorf("without %q there are %d bytes, want %d", gone, d.storage[""], want)
		}
	}
}

// A month has 730 hours, and the sum is rounded once.
func TestCost(t *testing.T) {
	p := readPrices(t, "currency: EUR\nvcpuHour: 0.001\nmemoryGiBHour: 0.01\nstorageGiBMonth: {ssd: 0.004}\ndefaultStorageClass: ssd\n")
	c := &Cluster{}
	c.setCost(p, demand{milliCPU: 500, memory: 1 << 30, storage: map[string]int64{"": 1 << 30}}, demand{milliCPU: 1500, memory: 1 << 30, storage: map[string]int64{"ssd": 3 << 29, "": 1 << 29}})
	got := []string{c.Cost.Before, c.Cost.After, c.Cost.Difference}
	for _, part := range c.Cost.Parts {
		name, amount := part.Describe()
		got = append(got, name+" "+amount+" "+part.DescribeMoney()+" "+part.Difference)
	}
	want := []string{"7.67", "8.40", "+0.73", "CPU 0.5 → 1.5 vCPU 0.37 → 1.10 +0.73", "memory 1Gi 7.30 0.00", "storage class ssd 1Gi → 2Gi 0.00 → 0.01 +0.01"}
	if diff := cmp.Diff(want, got); diff != "" || c.Cost.Incomplete || len(c.Cost.Unknown) > 0 {
		t.Errorf("unknown %v (-want +got):\n%s", c.Cost.Unknown, diff)
	}
}

// What has no price is said, and is in no sum.
func TestCostThatIsNotKnown(t *testing.T) {
	unset := func(pods ...string) map[corev1.ResourceName][]string {
		return map[corev1.ResourceName][]string{corev1.ResourceCPU: pods}
	}
	for name, tc := range map[string]struct {
		prices        string
		before, after demand
		refused       bool
		want          []string
		sum           string
	}{
		"a class without a price": {"storageGiBMonth: {ssd: 1}", demand{}, demand{storage: map[string]int64{"ssd": 1 << 30, "old": 2 << 30}}, false,
			[]string{"what 2Gi of storage class old cost: add the class to storageGiBMonth of the price file"}, "0.00 → 1.00"},
		"a class that nothing names": {"storageGiBMonth: {ssd: 1}", demand{storage: map[string]int64{"": 3 << 30}}, demand{}, false,
			[]string{"which storage class 3Gi have, since the declaration names none: add defaultStorageClass to the price file"}, "0.00"},
		"no price of CPU and memory": {"storageGiBMonth: {ssd: 1}", demand{milliCPU: 1, memory: 1}, demand{milliCPU: 1, memory: 1}, false,
			[]string{"what CPU costs: add vcpuHour to the price file", "what memory costs: add memoryGiBHour to the price file"}, "0.00"},
		"no request": {"vcpuHour: 1", demand{unset: unset("a-0", "a-1")}, demand{unset: unset("a-0", "a-1")}, false,
			[]string{"what the CPU of a-0 and a-1 costs: spec.resources.requests.cpu is not set"}, "0.00"},
		"a request that is added": {"vcpuHour: 1", demand{unset: unset("a-0")}, demand{milliCPU: 1000}, false,
			[]string{"what the CPU of a-0 costs before: spec.resources.requests.cpu is not set"}, "0.00 → 730.00"},
		"more members without one": {"vcpuHour: 1", demand{unset: unset("a-0")}, demand{unset: unset("a-0", "a-1")}, false,
			[]string{"what the CPU of a-0 costs before: spec.resources.requests.cpu is not set", "what the CPU of a-0 and a-1 costs after: spec.resources.requests.cpu is not set"}, "0.00"},
		"a change that is refused": {"vcpuHour: 1", demand{milliCPU: 1000}, demand{milliCPU: 1000}, true,
			[]string{"what the change costs once it is done: it is refused or does not end, and the cost is that of how far it goes"}, "730.00"},
	} {
		t.Run(name, func(t *testing.T) {
			c := &Cluster{}
			if tc.refused {
				c.refuse("Refused", "no")
			}
			c.setCost(readPrices(t, "currency: EUR\n"+tc.prices+"\n"), tc.before, tc.after)
			if diff := cmp.Diff(tc.want, c.Cost.Unknown); diff != "" || !c.Cost.Incomplete || c.Cost.DescribeMoney() != tc.sum {
				t.Errorf("%s, incomplete %v (-want +got):\n%s", c.Cost.DescribeMoney(), c.Cost.Incomplete, diff)
			}
		})
	}
}

// The sum of a plan is that of exact costs, and is incomplete with one of them.
func TestCostsAreAddedUp(t *testing.T) {
	third := &Cost{Currency: "EUR", before: big.NewRat(1, 300), after: big.NewRat(2, 300)}
	sum := addCosts([]Cluster{{Cost: third}, {}, {Cost: third}, {Cost: &Cost{Currency: "EUR", before: big.NewRat(1, 300), after: big.NewRat(2, 300), Incomplete: true}}})
	if sum.Before != "0.01" || sum.After != "0.02" || sum.Difference != "+0.01" || !sum.Incomplete || len(sum.Parts) > 0 {
		t.Errorf("%+v", sum)
	}
	if addCosts([]Cluster{{}}) != nil {
		t.Error("a plan without prices has a cost")
	}
}
