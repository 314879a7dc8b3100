package gpus

import (
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/asrconfig/asrconfig-go/core/fault"
)

// counted is "T4", "2xT4", "2 × T4" or "2*T4".
var counted = regexp.MustCompile(`^\s*(\d{1,6})\s*[xX×*]\s*(.+)$`)

// maxGPUs bounds how many GPUs a plan may ask for on one machine; the largest servers hold 16.
const maxGPUs = 64

// Parse reads a GPU specification: "T4", or "2xT4" for two. A GPU is given by a key, an alias or a
// driver's name, in any case, with or without spaces, '-', '_', "NVIDIA", "Tesla", "GeForce",
// "RTX", and with the memory size where it agrees ("L4 24GB"). A name that several cards share
// means the most common one: "A100" is the 40 GB SXM card, "H100" the 80 GB SXM card, "V100" and
// "P100" have 16 GB. Errors: NotFound for an unknown name, with the closest ones as the hint,
// InvalidArgument for a count outside 1..64.
func Parse(text string) (card Entry, count int, err error) {
	count, name := 1, text
	if parts := counted.FindStringSubmatch(text); parts != nil {
		count, _ = strconv.Atoi(parts[1]) // at most six digits, so it cannot fail
		name = parts[2]
	}
	if count < 1 || count > maxGPUs {
		return Entry{}, 0, fault.New(fault.InvalidArgument,
			`write the number of GPUs before the name, as in "2xT4"`,
			"cannot plan for %d GPUs (%q): the count must lie between 1 and %d", count,
			fault.Shorten(text), maxGPUs)
	}
	if card, ok := lookup(name); ok {
		return card, count, nil
	}
	return Entry{}, 0, unknown(name)
}

func unknown(name string) error {
	return fault.New(fault.NotFound, "did you mean "+strings.Join(closest(name), ", ")+"?",
		"there is no GPU %q in the catalogue", fault.Shorten(name))
}

// sizeSuffix is a memory size at the end of a name: "T4-16GB", "l4 24g".
var sizeSuffix = regexp.MustCompile(`(?i)^(.+?)[\s_-]+(\d{1,4})\s*g(?:i?b)?$`)

func lookup(name string) (Entry, bool) {
	if len(name) > maxName {
		return Entry{}, false
	}
	for _, spelling := range []string{normalise(name), normalise(name) + "g"} {
		// "A100-80" is "A100-80GB"
		if entry, ok := named(spelling); ok {
			return entry, true
		}
	}
	parts := sizeSuffix.FindStringSubmatch(strings.TrimSpace(name))
	if parts == nil {
		return Entry{}, false
	}
	entry, ok := named(normalise(parts[1]))
	size, _ := strconv.ParseFloat(parts[2], 64) // at most four digits, so it cannot fail
	return entry, ok && entry.soldAs(size)
}

// maxName bounds the names that are looked up and compared, in bytes.
const maxName = 100

// soldAs reports whether an advertised size matches: anything from what the driver shows in GiB
// (H200: 141 for 140.4) to the same in GB (T4: 16 for 16.1), within 3 %.
func (e Entry) soldAs(gigabytes float64) bool {
	bytes := float64(e.MemoryTotalBytes)
	return gigabytes >= 0.97*bytes/(1<<30) && gigabytes <= 1.03*bytes/1e9
}

func named(normalised string) (Entry, bool) {
	for _, e := range entries() {
		if slices.Contains(e.names(), normalised) {
			return e, true
		}
	}
	return Entry{}, false
}

// names are all normalised names of an entry.
func (e Entry) names() []string {
	var all []string
	for _, name := range slices.Concat([]string{e.Key}, e.Aliases, e.DriverNames) {
		all = append(all, normalise(name))
	}
	return all
}

// decoration is what names are compared without; sizes keep their number and a "g".
var decoration = strings.NewReplacer("nvidia", "", "tesla", "", "geforce", "", "rtx", "", " ", "",
	"\t", "", "-", "", "_", "",
	"gib", "g", "gb", "g")

// normalise makes names comparable: "NVIDIA GeForce RTX 4090" and "4090" are one, as are "a100_40g"
// and "A100-40GB".
func normalise(name string) string { return decoration.Replace(strings.ToLower(name)) }

// closest returns the keys of the five cards whose names look most like the given one.
func closest(name string) []string {
	const wanted = 5
	if len(name) > maxName {
		name = name[:maxName]
	}
	type candidate struct {
		key      string
		distance int
	}
	normalised := normalise(name)
	var candidates []candidate
	for _, e := range entries() {
		best := maxName
		for _, spelling := range e.names() {
			best = min(best, fault.EditDistance(normalised, spelling))
		}
		candidates = append(candidates, candidate{e.Key, best})
	}
	slices.SortStableFunc(candidates, func(a, b candidate) int { return a.distance - b.distance })
	keys := make([]string, wanted)
	for i := range keys {
		keys[i] = candidates[i].key
	}
	return keys
}
