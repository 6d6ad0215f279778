package plan

import (
	"fmt"
	"maps"
	"math/big"
	"slices"
	"strconv"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/holdfast-db/holdfast/internal/forecast"
)

// hoursPerMonth are those of a mean month, by which clouds compute.
const hoursPerMonth = 730

// gib is a GiB in bytes, and milli a vCPU in the unit of requests.
const (
	gib   = 1 << 30
	milli = 1000
)

// Cost is what a month of 730 hours costs before and after a commit, by the user's prices.
type Cost struct {
	Currency string `json:"currency"`
	// Before, After and Difference have two decimals, and leave out what is not known.
	Before     string `json:"before"`
	After      string `json:"after"`
	Difference string `json:"difference"`
	// Parts are what it is made of; none of the cost of several clusters.
	Parts []CostPart `json:"parts,omitempty"`
	// Incomplete says that something has no price, which Unknown of each cluster names.
	Incomplete bool     `json:"incomplete,omitempty"`
	Unknown    []string `json:"unknown,omitempty"`

	before, after *big.Rat
}

// CostPart is one kind of what a cluster asks for.
type CostPart struct {
	// Resource is cpu, memory or storage.
	Resource string `json:"resource"`
	// StorageClass of storage; empty where nothing names it.
	StorageClass string `json:"storageClass,omitempty"`
	// From and To are how much is asked for: vCPUs, or bytes as a quantity such as 10Gi.
	From string `json:"from"`
	To   string `json:"to"`
	// Before, After and Difference are its cost; empty without a price.
	Before     string `json:"before,omitempty"`
	After      string `json:"after,omitempty"`
	Difference string `json:"difference,omitempty"`
}

// demand is what a cluster asks for that has a price.
type demand struct {
	milliCPU, memory int64
	// unset are the pods with a container that requests none, by resource.
	unset map[corev1.ResourceName][]string
	// storage in bytes, by class; that of the empty name is not known.
	storage map[string]int64
}

// demandOf a world, at rest. Pods are taken as their template declares them: what admission
// adds to those that run is not known of those that follow, and would look like a saving.
func demandOf(w *forecast.World) demand {
	d := demand{unset: map[corev1.ResourceName][]string{}, storage: map[string]int64{}}
	for _, n := range slices.Sorted(maps.Keys(w.Observed.Pods)) {
		pod := w.Observed.Pods[n]
		containers := pod.Spec.Containers
		if set := w.Observed.StatefulSet; set != nil {
			containers = set.Spec.Template.Spec.Containers
		}
		d.addPod(pod.Name, containers)
	}
	for _, v := range listVolumes(w) {
		d.addVolume(v)
	}
	return d
}

func listVolumes(w *forecast.World) []*corev1.PersistentVolumeClaim {
	volumes := slices.Collect(maps.Values(w.Observed.Volumes))
	if v := w.Observed.BackupVolume; v != nil {
		volumes = append(volumes, v)
	}
	return volumes
}

// demandAfter is what stays of a cluster whose object is deleted by these steps: volumes.
func demandAfter(w *forecast.World, steps []forecast.Step) demand {
	d := demand{storage: map[string]int64{}}
	gone := map[string]bool{}
	for _, s := range steps {
		if s.Kind == forecast.VolumeDeleted {
			for _, name := range s.Volumes {
				gone[name] = true
			}
		}
	}
	for _, v := range listVolumes(w) {
		if !gone[v.Name] {
			d.addVolume(v)
		}
	}
	return d
}

// addPod adds what the containers of a pod request. The API server takes a limit for a
// request that is not set.
func (d *demand) addPod(pod string, containers []corev1.Container) {
	for _, name := range []corev1.ResourceName{corev1.ResourceCPU, corev1.ResourceMemory} {
		set := true
		for i := range containers {
			asks := containers[i].Resources
			quantity, has := asks.Requests[name]
			if !has {
				quantity, has = asks.Limits[name]
			}
			set = set && has
			if name == corev1.ResourceCPU {
				d.milliCPU += quantity.MilliValue()
			} else {
				d.memory += quantity.Value()
			}
		}
		if !set {
			d.unset[name] = append(d.unset[name], pod)
		}
	}
}

func (d *demand) addVolume(v *corev1.PersistentVolumeClaim) {
	class := ""
	if v.Spec.StorageClassName != nil {
		class = *v.Spec.StorageClassName
	}
	size := v.Spec.Resources.Requests[corev1.ResourceStorage]
	d.storage[class] += size.Value()
}

// setCost says what a cluster costs before and after.
func (c *Cluster) setCost(p *Prices, before, after demand) {
	if p == nil {
		return
	}
	c.Cost = &Cost{Currency: p.currency, before: new(big.Rat), after: new(big.Rat)}
	c.Cost.addComputing(p, before, after)
	c.Cost.addStorage(p, p.sumByClass(before.storage), p.sumByClass(after.storage))
	if len(c.Refused)+len(c.Waits) > 0 {
		c.Cost.Unknown = append(c.Cost.Unknown, "what the change costs once it is done: it is refused or does not end, and the cost is that of how far it goes")
	}
	c.Cost.conclude()
}

// addComputing adds CPU and memory.
func (c *Cost) addComputing(p *Prices, before, after demand) {
	for _, one := range []struct {
		part          CostPart
		name          corev1.ResourceName
		field, what   string
		price         *big.Rat
		before, after int64
		unit          int64
	}{
		{CostPart{Resource: "cpu", From: describeCPU(before.milliCPU), To: describeCPU(after.milliCPU)}, corev1.ResourceCPU, "vcpuHour", "CPU", p.vcpuHour, before.milliCPU, after.milliCPU, milli},
		{CostPart{Resource: "memory", From: describeBytes(before.memory), To: describeBytes(after.memory)}, corev1.ResourceMemory, "memoryGiBHour", "memory", p.memoryHour, before.memory, after.memory, gib},
	} {
		c.addUnset(one.what, one.name, before.unset[one.name], after.unset[one.name])
		if one.before == 0 && one.after == 0 {
			continue
		}
		price := one.price
		if price == nil {
			c.Unknown = append(c.Unknown, fmt.Sprintf("what %s costs: add %s to the price file", one.what, one.field))
		} else {
			price = new(big.Rat).Mul(price, big.NewRat(hoursPerMonth, 1))
		}
		c.addPart(one.part, price, big.NewRat(one.before, one.unit), big.NewRat(one.after, one.unit))
	}
}

// addUnset says of which pods no cost is known, since they request nothing.
func (c *Cost) addUnset(what string, name corev1.ResourceName, before, after []string) {
	add := func(pods []string, when string) {
		if len(pods) > 0 {
			c.Unknown = append(c.Unknown, fmt.Sprintf("what the %s of %s costs%s: spec.resources.requests.%s is not set", what, summarize(pods), when, name))
		}
	}
	if slices.Equal(before, after) || len(before) == 0 {
		add(after, "")
		return
	}
	add(before, " before")
	add(after, " after")
}

// addPart adds how much is asked for, and what that costs where the price is known.
func (c *Cost) addPart(part CostPart, price, before, after *big.Rat) {
	if price != nil {
		was, is := new(big.Rat).Mul(price, before), new(big.Rat).Mul(price, after)
		c.before.Add(c.before, was)
		c.after.Add(c.after, is)
		part.Before, part.After, part.Difference = describeMoney(was, is)
	}
	c.Parts = append(c.Parts, part)
}

func (c *Cost) conclude() {
	c.Incomplete = c.Incomplete || len(c.Unknown) > 0
	c.Before, c.After, c.Difference = describeMoney(c.before, c.after)
}

// addStorage adds volumes, by their classes.
func (c *Cost) addStorage(p *Prices, before, after map[string]int64) {
	classes := map[string]bool{}
	for class := range before {
		classes[class] = true
	}
	for class := range after {
		classes[class] = true
	}
	for _, class := range slices.Sorted(maps.Keys(classes)) {
		was, is, price := before[class], after[class], p.storageMonth[class]
		switch size := describeBytes(max(was, is)); {
		case class == "":
			c.Unknown = append(c.Unknown, fmt.Sprintf("which storage class %s have, since the declaration names none: add defaultStorageClass to the price file", size))
		case price == nil:
			c.Unknown = append(c.Unknown, fmt.Sprintf("what %s of storage class %s cost: add the class to storageGiBMonth of the price file", size, class))
		}
		c.addPart(CostPart{Resource: "storage", StorageClass: class, From: describeBytes(was), To: describeBytes(is)}, price, big.NewRat(was, gib), big.NewRat(is, gib))
	}
}

// sumByClass gives volumes that name no class the one that the price file says.
func (p *Prices) sumByClass(volumes map[string]int64) map[string]int64 {
	sums := map[string]int64{}
	for class, size := range volumes {
		if class == "" {
			class = p.defaultClass
		}
		sums[class] += size
	}
	return sums
}

// addCosts adds up what all clusters of a plan cost; nil without prices.
func addCosts(clusters []Cluster) *Cost {
	var sum *Cost
	for i := range clusters {
		c := clusters[i].Cost
		if c == nil {
			continue
		}
		if sum == nil {
			sum = &Cost{Currency: c.Currency, before: new(big.Rat), after: new(big.Rat)}
		}
		sum.before.Add(sum.before, c.before)
		sum.after.Add(sum.after, c.after)
		sum.Incomplete = sum.Incomplete || c.Incomplete
	}
	if sum != nil {
		sum.conclude()
	}
	return sum
}

// describeMoney rounds to two decimals. The difference is that of what is shown.
func describeMoney(before, after *big.Rat) (was, is, difference string) {
	was, is = before.FloatString(2), after.FloatString(2)
	cents := new(big.Rat).Sub(parseMoney(is), parseMoney(was))
	difference = cents.FloatString(2)
	if cents.Sign() > 0 {
		difference = "+" + difference
	}
	return was, is, difference
}

// parseMoney reads what FloatString wrote.
func parseMoney(text string) *big.Rat {
	money, _ := new(big.Rat).SetString(text)
	return money
}

func describeCPU(milliCPU int64) string {
	return strconv.FormatFloat(float64(milliCPU)/milli, 'f', -1, 64)
}

func describeBytes(bytes int64) string {
	return resource.NewQuantity(bytes, resource.BinarySI).String()
}

// Describe names a part, and how much of it is asked for.
func (p CostPart) Describe() (name, amount string) {
	switch {
	case p.Resource == "cpu":
		return "CPU", describeChange(p.From, p.To) + " vCPU"
	case p.Resource == "memory":
		return p.Resource, describeChange(p.From, p.To)
	case p.StorageClass == "":
		return "storage of an unknown class", describeChange(p.From, p.To)
	}
	return "storage class " + p.StorageClass, describeChange(p.From, p.To)
}

// DescribeMoney is a cost before and after.
func (c *Cost) DescribeMoney() string { return describeChange(c.Before, c.After) }

// DescribeMoney is the cost of a part before and after.
func (p CostPart) DescribeMoney() string {
	if p.After == "" {
		return "not known"
	}
	return describeChange(p.Before, p.After)
}

// describeChange is a value that may have become another one.
func describeChange(before, after string) string {
	if before == after {
		return after
	}
	return before + " → " + after
}
