package tune

import (
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/holdfast-db/holdfast/internal/agentapi"
)

const day = 24 * time.Hour

const (
	// raiseAfter is what a member must have measured before more is recommended, and cutAfter
	// what every member must have before less is: a week has days of each kind.
	raiseAfter = 3 * day
	cutAfter   = 7 * day
	// requestMargin is how much more than its need a request is, and limitMargin a limit of
	// memory: beyond that a member is killed.
	requestMargin = 1.15
	limitMargin   = 1.3
	// worthRequest, and worthLimit where more is needed, are the factors by which a value must
	// be off before another one is recommended, and stillWorth by which one that was stays.
	worthRequest = 1.3
	worthLimit   = 1.15
	stillWorth   = 1.1
	// newValue is the factor by which a recommended value must be off to be replaced.
	newValue = 1.2
	// mostCut is the largest factor by which memory is cut at once: what the members compute
	// from it is measured before the next one.
	mostCut = 2
	// killMargin and leastKillMargin are how much more than a limit that did not suffice there
	// should be: what the Vertical Pod Autoscaler takes.
	killMargin      = 1.2
	leastKillMargin = 100 * mebibyte
	// worthCPU and worthMemory are the least changes.
	worthCPU    = 100
	worthMemory = 128 * mebibyte
	// leastCPU is the least request.
	leastCPU = 100
)

// leastMemory is what a member of an engine takes without data and clients, and what the API
// asks for.
var leastMemory = map[Engine]float64{PostgreSQL: 256 * mebibyte, MySQL: gibibyte, Etcd: 128 * mebibyte}

// Names of the fields of spec.resources, as spec.tuning.exclude has them.
const (
	limitsMemory   = "limits.memory"
	requestsMemory = "requests.memory"
	requestsCPU    = "requests.cpu"
)

// resourceNames are in the sequence in which more may be committed one by one: no request is
// ever above its limit.
var resourceNames = []string{limitsMemory, requestsMemory, requestsCPU}

// ResourceField is the field of the spec that declares a resource.
func ResourceField(name string) string { return "spec.resources." + name }

// ResourceNames are the resources that may be recommended.
func ResourceNames() []string { return slices.Clone(resourceNames) }

// Amount is a declared quantity: of millicores or bytes, and as it is declared. The zero value
// is none.
type Amount struct {
	Value int64
	Text  string
}

func (a Amount) String() string {
	if a.Value == 0 {
		return "none"
	}
	return a.Text
}

// Resources are the declared ones. A request that is not declared is as the limit, as
// Kubernetes has it.
type Resources struct{ RequestCPU, LimitCPU, RequestMemory, LimitMemory Amount }

// Member is what one of the members measured of its container; nil where it has not reported
// yet.
type Member struct {
	Name   string
	Sizing *agentapi.Sizing
}

// RecommendResources returns which resources should be declared otherwise, by what the members
// and their databases measured: where they lack some, and where they have more than they need.
// Those that were given before stay as they were while they hold, and while a member has not
// reported.
func RecommendResources(s Spec, members []Member, slots []agentapi.TuningSlot, was []Recommendation, now time.Time) (lacking, spare []Recommendation) {
	for _, r := range recommendResources(s, members, slots, was, now) {
		value, _ := parseAmount(r.Value)
		switch less := value < float64(s.Resources.findAmount(r.Name).Value); {
		case less && r.Name == requestsMemory: // the limit is not cut below it
			spare = slices.Insert(spare, 0, r)
		case less:
			spare = append(spare, r)
		default:
			lacking = append(lacking, r)
		}
	}
	return lacking, spare
}

func recommendResources(s Spec, members []Member, slots []agentapi.TuningSlot, was []Recommendation, now time.Time) []Recommendation {
	if s.Off {
		return nil
	}
	j := resourceJudge{spec: s, members: members, now: now, before: map[string]*Recommendation{}}
	for _, name := range resourceNames {
		if before := findRecommendation(was, name); before != nil && before.Current == s.Resources.findAmount(name).String() && !slices.Contains(s.Exclude, name) {
			j.before[name] = before
		}
	}
	known := len(members) > 0 && !slices.ContainsFunc(members, func(m Member) bool { return m.Sizing == nil })
	if !known {
		return j.listBefore()
	}
	if fresh := listFresh(slots, now); len(fresh) > 0 {
		o := observed{settings: fresh[len(fresh)-1].Settings, peaks: map[string]float64{}}
		for _, slot := range fresh {
			for name, peak := range slot.Peaks {
				o.peaks[name] = max(o.peaks[name], peak)
			}
		}
		j.settings = memoryUse(s.Engine, o.settings, o.peaks)
	}
	return j.recommend()
}

// findAmount is what is in force of a resource: a request that is not declared is as the limit.
func (r Resources) findAmount(name string) Amount {
	request, limit := r.RequestMemory, r.LimitMemory
	switch name {
	case limitsMemory:
		return limit
	case requestsCPU:
		request, limit = r.RequestCPU, r.LimitCPU
	}
	if request.Value == 0 {
		return limit
	}
	return request
}

// resourceJudge compares what members need with what is declared.
type resourceJudge struct {
	spec    Spec
	members []Member
	// settings is what the database's settings may take together, in bytes; 0 while that is not
	// measured.
	settings float64
	now      time.Time
	before   map[string]*Recommendation
}

func (j resourceJudge) listBefore() []Recommendation {
	var list []Recommendation
	for _, name := range resourceNames {
		if before := j.before[name]; before != nil {
			list = append(list, *before)
		}
	}
	return list
}

func (j resourceJudge) recommend() []Recommendation {
	limit := j.decide(limitsMemory, j.spec.Resources.LimitMemory, j.judgeLimit())
	var list []Recommendation
	for _, r := range []*Recommendation{
		limit, j.recommendRequest(limit), j.decide(requestsCPU, j.spec.Resources.findAmount(requestsCPU), j.judgeCPU()),
	} {
		if r != nil {
			list = append(list, *r)
		}
	}
	return list
}

// recommendRequest is about the request of memory. One that is declared as large as the limit
// stays so: the pod would have another class of quality of service.
func (j resourceJudge) recommendRequest(limit *Recommendation) *Recommendation {
	declared := j.spec.Resources
	switch {
	case declared.RequestMemory.Value == 0 && declared.LimitMemory.Value > 0:
		return nil // it is the limit
	case declared.RequestMemory.Value == 0 || declared.RequestMemory.Value != declared.LimitMemory.Value:
		return j.decide(requestsMemory, declared.RequestMemory, j.judgeRequest(limit))
	case limit == nil || slices.Contains(j.spec.Exclude, requestsMemory):
		return nil
	}
	same := *limit
	same.Name, same.Field, same.Current = requestsMemory, ResourceField(requestsMemory), declared.RequestMemory.String()
	same.Evidence = "it is declared as large as limits.memory, and stays so"
	return &same
}

// verdict is what a resource should be. Nothing is a reason in the zero value.
type verdict struct {
	// value to declare, in millicores or bytes, and how it is written.
	value  float64
	format func(float64) string
	// raise and cut say that another value is worth a change, and holds that a value in the
	// same direction, which was recommended before, still is.
	raise, cut         bool
	holdsUp, holdsDown bool
	// killed is when a member was killed, and least what should have been there.
	killed   time.Time
	least    float64
	evidence string
}

// decide has what was recommended before stay while it holds: it changes at most once a day,
// unless a member is killed meanwhile.
func (j resourceJudge) decide(name string, current Amount, v verdict) *Recommendation {
	if slices.Contains(j.spec.Exclude, name) {
		return nil
	}
	if before := j.before[name]; before != nil && j.holds(*before, current, v) {
		return before
	}
	if !v.raise && !v.cut {
		return nil
	}
	return &Recommendation{
		Name: name, Field: ResourceField(name), Current: current.String(), Value: v.format(v.value), Evidence: v.evidence,
		Restart: true, Since: j.now.UTC().Truncate(time.Second),
	}
}

func (j resourceJudge) holds(before Recommendation, current Amount, v verdict) bool {
	was, known := parseAmount(before.Value)
	more := was > float64(current.Value)
	switch {
	case !known, v.killed.After(before.Since) && v.least > was:
		return false
	case j.now.Sub(before.Since) < leastStay:
		return true
	case v.raise || v.cut:
		return more == v.raise && max(v.value/was, was/v.value) <= newValue
	case more:
		return v.holdsUp
	}
	return v.holdsDown
}

// findLargest finds the member with the largest number.
func (j resourceJudge) findLargest(number func(*agentapi.Sizing) float64) (most float64, of Member) {
	most = -1
	for _, m := range j.members {
		if n := number(m.Sizing); n > most {
			most, of = n, m
		}
	}
	return most, of
}

// mayCut says whether every member has measured for long enough.
func (j resourceJudge) mayCut() bool {
	return !slices.ContainsFunc(j.members, func(m Member) bool { return m.Sizing.Measured() < cutAfter })
}

// measured counts what a member measured for long enough.
func measured(number func(*agentapi.Sizing) int64) func(*agentapi.Sizing) float64 {
	return func(s *agentapi.Sizing) float64 {
		if s.Measured() < raiseAfter {
			return 0
		}
		return float64(number(s))
	}
}

func (j resourceJudge) judgeCPU() verdict {
	declared := j.spec.Resources
	current := float64(declared.findAmount(requestsCPU).Value)
	recent, _ := j.findLargest(measured(func(s *agentapi.Sizing) int64 { return s.CPU }))
	most, who := j.findLargest(measured(func(s *agentapi.Sizing) int64 { return max(s.CPU, s.MostCPU) }))
	value := roundAmount(max(most*requestMargin, leastCPU), 50, 1./40)
	if limit := float64(declared.LimitCPU.Value); limit > 0 {
		recent, value = min(recent, limit/requestMargin), min(value, limit)
	}
	// As large as the limit, it may be meant for whole processors of its own.
	fixed := declared.LimitCPU.Value > 0 && declared.LimitCPU.Value == declared.findAmount(requestsCPU).Value
	v := verdict{
		value: value, format: formatCPU,
		raise:     most > 0 && recent*requestMargin >= worthRequest*current && value-current >= worthCPU && !fixed,
		holdsUp:   most*requestMargin >= stillWorth*current,
		cut:       j.mayCut() && current >= worthRequest*value && current-value >= worthCPU && !fixed,
		holdsDown: current >= stillWorth*value,
	}
	v.evidence = fmt.Sprintf("%s used up to %s in 95 %% of the minutes, in %s", who.Name, formatCPU(most), describeMeasured(who.Sizing))
	if s := who.Sizing; v.raise && s != nil {
		if s.Throttled >= 0.01 {
			v.evidence += fmt.Sprintf("; limits.cpu stopped it in %.0f %% of its periods", 100*s.Throttled)
		}
		if s.Stalled >= 0.01 {
			v.evidence += fmt.Sprintf("; it waited for a processor %.0f %% of the time", 100*s.Stalled)
		}
	}
	return v
}

func (j resourceJudge) judgeRequest(limit *Recommendation) verdict {
	declared := j.spec.Resources
	current := float64(declared.RequestMemory.Value)
	recent, _ := j.findLargest(measured(func(s *agentapi.Sizing) int64 { return s.Memory }))
	most, who := j.findLargest(measured(func(s *agentapi.Sizing) int64 { return s.MostMemory }))
	held, holder := j.findLargest(func(s *agentapi.Sizing) float64 { return float64(s.MostHeld) })
	least := max(leastMemory[j.spec.Engine], j.settings)
	bound := float64(declared.LimitMemory.Value)
	if limit != nil {
		if value, known := parseAmount(limit.Value); known {
			bound = value
		}
	}
	v := verdict{format: formatMemory, value: roundMemory(max(most*requestMargin, least))}
	if bound > 0 {
		v.value = min(v.value, bound)
	}
	v.raise = most > 0 && recent*requestMargin >= worthRequest*current && v.value-current >= worthMemory
	v.holdsUp = most*requestMargin >= stillWorth*current
	down := roundMemory(max(held*requestMargin, least, current/mostCut))
	v.holdsDown = current >= stillWorth*down
	v.evidence = describeMemory(who, most)
	if !v.raise && j.mayCut() && j.settings > 0 && current >= worthRequest*down && current-down >= worthMemory {
		v.cut, v.value, v.evidence = true, down, describeHeld(holder, held)
	}
	return v
}

func (j resourceJudge) judgeLimit() verdict {
	declared := j.spec.Resources
	current := float64(declared.LimitMemory.Value)
	if current == 0 {
		return verdict{}
	}
	recent, _ := j.findLargest(measured(func(s *agentapi.Sizing) int64 { return s.Memory }))
	most, who := j.findLargest(measured(func(s *agentapi.Sizing) int64 { return s.MostMemory }))
	held, holder := j.findLargest(func(s *agentapi.Sizing) float64 { return float64(s.MostHeld) })
	killed, victim := j.findLargest(leastAfterKill)
	least := max(leastMemory[j.spec.Engine], j.settings/MemoryShare)
	v := verdict{format: formatMemory, value: roundMemory(max(most*limitMargin, killed, least))}
	v.raise = (most > 0 && recent*limitMargin >= worthLimit*current || killed > current) && v.value-current >= worthMemory/2
	v.holdsUp = max(most*limitMargin, killed) >= stillWorth*current
	v.evidence = describeMemory(who, most)
	if killed > current {
		v.killed, v.least = victim.Sizing.LastKill, killed
		v.evidence = describeKills(victim)
		if most > 0 {
			v.evidence += "; " + describeMemory(who, most)
		}
	}
	down := roundMemory(max(held*limitMargin, killed, least, current/mostCut, float64(declared.RequestMemory.Value)))
	if declared.RequestMemory.Value == declared.LimitMemory.Value { // it is cut with the limit
		down = roundMemory(max(held*limitMargin, killed, least, current/mostCut))
	}
	v.holdsDown = current >= stillWorth*down
	if !v.raise && j.mayCut() && j.settings > 0 && current >= worthRequest*down && current-down >= worthMemory {
		v.cut, v.value, v.evidence = true, down, describeHeld(holder, held)
	}
	return v
}

// leastAfterKill is what should be there where a limit did not suffice.
func leastAfterKill(s *agentapi.Sizing) float64 {
	if s.Kills == 0 {
		return 0
	}
	memory := float64(s.KillMemory)
	return max(memory*killMargin, memory+leastKillMargin)
}

func describeMemory(who Member, most float64) string {
	return fmt.Sprintf("%s needed %s at the peak of a day, page cache not counted, in %s", who.Name, describeBytes(most), describeMeasured(who.Sizing))
}

func describeHeld(who Member, held float64) string {
	return fmt.Sprintf("no member held more than %s, files in use counted, in %s", describeBytes(held), describeMeasured(who.Sizing))
}

func describeKills(who Member) string {
	s := who.Sizing
	times := "once"
	if s.Kills > 1 {
		times = fmt.Sprintf("%d times", s.Kills)
	}
	return fmt.Sprintf("%s was killed for lack of memory %s in eight weeks, with %s, last on %s", who.Name, times, describeBytes(float64(s.KillMemory)), s.LastKill.UTC().Format(time.DateOnly))
}

func describeMeasured(s *agentapi.Sizing) string {
	if s == nil {
		return "no time"
	}
	if days := int(s.Measured() / day); days >= 2 {
		return fmt.Sprintf("%d days", days)
	}
	return fmt.Sprintf("%.0f hours", s.Measured().Hours())
}

// ListComputed are the settings that members compute from a resource, and that change with it:
// those of memory follow the request, or the limit where no request is declared.
func ListComputed(s Spec, name string) []string {
	if s.Resources.RequestMemory.Value == 0 && name == limitsMemory {
		name = requestsMemory
	}
	if name != requestsMemory {
		return nil
	}
	var list []string
	for _, setting := range computedSettings[s.Engine] {
		if s.Declared[setting] == "" {
			list = append(list, setting)
		}
	}
	return list
}

// computedSettings are those that an engine's agent computes from memory. A test of each agent
// compares them with what it computes.
var computedSettings = map[Engine][]string{
	PostgreSQL: {"effective_cache_size", "maintenance_work_mem", "shared_buffers", "work_mem"},
	MySQL:      {"innodb_buffer_pool_size", "innodb_log_buffer_size", "max_connections", "temptable_max_ram", "tmp_table_size"},
}

// roundAmount rounds up to a multiple of a step: the least one, doubled until it is so large a
// share.
func roundAmount(v, least, share float64) float64 {
	step := least
	for step < v*share {
		step *= 2
	}
	return math.Ceil(v/step-1e-9) * step
}

func roundMemory(v float64) float64 { return roundAmount(v, 64*mebibyte, 1./20) }

func formatCPU(v float64) string {
	if math.Mod(v, 1000) == 0 {
		return strconv.FormatFloat(v/1000, 'f', 0, 64)
	}
	return strconv.FormatFloat(math.Ceil(v), 'f', 0, 64) + "m"
}

func formatMemory(v float64) string { return rule{units: quantityUnits}.format(v) }

// parseAmount reads what formatCPU and formatMemory write.
func parseAmount(text string) (float64, bool) {
	if strings.HasSuffix(text, "i") {
		return rule{units: quantityUnits}.parse(text)
	}
	number, factor := text, 1000.0
	if milli, found := strings.CutSuffix(text, "m"); found {
		number, factor = milli, 1
	}
	value, err := strconv.ParseFloat(number, 64)
	return value * factor, err == nil && value > 0 && !math.IsInf(value, 0)
}
