package allocator

import (
	"cmp"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/asrconfig/asrconfig-go/core/fault"
)

// maxText bounds the text of the settings, in bytes.
const maxText = 4096

// options are the keys that PyTorch 2.15 knows, each with what reads its value.
var options = map[string]func(*Settings, value) error{
	"backend":           readBackend,
	"max_split_size_mb": readSize(0, func(s *Settings) *uint64 { return &s.MaxSplitSize }),
	"max_non_split_rounding_mb": readSize(0, func(s *Settings) *uint64 {
		return &s.MaxNonSplitRounding
	}),
	"large_segment_size_mb": readSize(minLargeAlloc+mib, func(s *Settings) *uint64 {
		return &s.LargeSegmentSize
	}),
	"roundup_power2_divisions":     readDivisions,
	"garbage_collection_threshold": readThreshold,
	"per_process_memory_fraction":  readFraction,
	"expandable_segments": readBool(func(s *Settings) *bool {
		return &s.ExpandableSegments
	}),
	"throw_on_cudamalloc_oom": readBool(func(s *Settings) *bool {
		return &s.ThrowOnCudaMallocOOM
	}),
}

// ignored are the keys that change nothing that a single stream reserves: pinned host memory,
// locks, graphs, and how much address space expandable segments ask for.
var ignored = strings.Fields(`
	expandable_segments_reserve expandable_segments_reserve_by_class
	graph_capture_record_stream_reuse pinned_free_catch_all pinned_max_cached_size_mb
	pinned_max_round_threshold_mb pinned_num_register_threads pinned_reserve_segment_size_mb
	pinned_use_background_threads pinned_use_cuda_host_register pinned_use_hip_host_register
	release_lock_on_cudamalloc release_lock_on_hipmalloc`)

// ParseSettings reads the text of PYTORCH_CUDA_ALLOC_CONF, or PYTORCH_ALLOC_CONF:
// "key:value,key:[a:b,c:d]", white space ignored, a later key over an earlier one. The empty text
// means the defaults. It is stricter than PyTorch, which reads "21x" as 21; its errors name the key
// and the values that it takes.
func ParseSettings(text string) (Settings, error) {
	s := Settings{}
	if len(text) > maxText {
		return s, fault.New(fault.InvalidArgument, "",
			"allocator settings of %d bytes; at most %d are read", len(text), maxText)
	}
	for text = strings.Join(strings.Fields(text), ""); text != ""; {
		parts := option.FindStringSubmatch(text)
		if parts == nil {
			return Settings{}, fault.New(fault.InvalidArgument,
				`write "key:value,key:value", lists as "key:[a:b,c:d]"`,
				"allocator settings are not understood at %q", fault.Shorten(text))
		}
		v := value{key: parts[1], word: parts[2], list: parts[3]}
		if read, ok := options[v.key]; ok {
			if err := read(&s, v); err != nil {
				return Settings{}, err
			}
		} else if !slices.Contains(ignored, v.key) {
			return Settings{}, unknownKey(v.key)
		}
		text = text[len(parts[0]):]
	}
	if err := s.check(); err != nil {
		return Settings{}, err
	}
	return s, nil
}

// check refuses combinations that PyTorch reads but cannot work with.
func (s Settings) check() error {
	if s.MaxSplitSize > 0 && s.MaxSplitSize < s.filled().LargeSegmentSize {
		return fault.New(fault.InvalidArgument, "raise max_split_size_mb",
			"max_split_size_mb is below large_segment_size_mb")
	}
	if s.ExpandableSegments && s.filled().LargeSegmentSize%roundLarge != 0 {
		return fault.New(fault.InvalidArgument, "use an even number of MB",
			"large_segment_size_mb with expandable_segments must be a multiple of the device's "+
				"pages of 2 MB")
	}
	return nil
}

// option is the first one of a text: "key:value" or "key:[list]", and the comma after it.
var option = regexp.MustCompile(`^([^,:\[\]]+):(?:([^,:\[\]]+)|\[([^\[\]]*)\])(?:,|$)`)

// value is that of one option: a word, or, where that is "", what is between the brackets of a list.
type value struct{ key, word, list string }

// wrong is the error of a value that the option does not take.
func (v value) wrong(takes string) error {
	return fault.New(fault.InvalidArgument, v.key+" takes "+takes,
		"allocator setting %s:%s is not understood", v.key, fault.Shorten(v.word+v.list))
}

func unknownKey(key string) error {
	keys := slices.AppendSeq(slices.Clone(ignored), maps.Keys(options))
	slices.Sort(keys)
	short := key[:min(len(key), 64)]
	nearest := slices.MinFunc(keys, func(a, b string) int {
		return fault.EditDistance(short, a) - fault.EditDistance(short, b)
	})
	return fault.New(fault.InvalidArgument, "did you mean "+nearest+"?",
		"unknown allocator setting %q", fault.Shorten(key))
}

func readBackend(_ *Settings, v value) error {
	switch v.word {
	case "native":
		return nil
	case "cudaMallocAsync":
		return fault.New(fault.Unsupported, "leave the backend out, or plan with measured memory",
			"the allocator backend cudaMallocAsync is not simulated: the driver decides what it "+
				"reserves")
	default:
		return v.wrong("native or cudaMallocAsync")
	}
}

func readBool(field func(*Settings) *bool) func(*Settings, value) error {
	return func(s *Settings, v value) error {
		if v.word != "True" && v.word != "False" {
			return v.wrong("True or False")
		}
		*field(s) = v.word == "True"
		return nil
	}
}

// readSize reads a whole number of MiB that is at least lowest bytes; 0: a large segment. Above
// 2^40, more than any device has, the number does not matter and could only overflow sums.
func readSize(lowest uint64, size func(*Settings) *uint64) func(*Settings, value) error {
	return func(s *Settings, v value) error {
		least := cmp.Or(lowest, s.filled().LargeSegmentSize) / mib
		number, err := strconv.ParseUint(v.word, 10, 64)
		if err != nil || number < least {
			return v.wrong(fmt.Sprintf("a whole number of MB from %d on", least))
		}
		*size(s) = min(number, tooLarge/mib) * mib
		return nil
	}
}

func readThreshold(s *Settings, v value) error {
	number, err := strconv.ParseFloat(v.word, 64)
	if err != nil || !(number > 0 && number < 1) {
		return v.wrong("a number between 0 and 1, both excluded")
	}
	s.GarbageCollectionThreshold = number
	return nil
}

func readFraction(s *Settings, v value) error {
	number, err := strconv.ParseFloat(v.word, 64)
	if err != nil || !(number >= 0 && number <= 1) {
		return v.wrong("a number from 0 to 1")
	}
	s.MemoryFraction = &number
	return nil
}
