package allocator

import (
	"errors"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/asrconfig/asrconfig-go/core/fault"
)

func TestParseSettings(t *testing.T) {
	fraction, nothing := 0.5, 0.0
	// index 8 is 256 MiB: what is below the first entry has its value, what no entry names has none
	list := Settings{}
	fill(list.RoundupPower2Divisions[:9], 1)
	list.RoundupPower2Divisions[9] = 2
	list.RoundupPower2Divisions[10] = 4
	fill(list.RoundupPower2Divisions[11:], 8)
	for text, want := range map[string]Settings{
		"":                      {},
		" \n":                   {},
		"max_split_size_mb:128": {MaxSplitSize: 128 * mib},
		// white space is ignored, and a comma at the end
		" max_split_size_mb : 1 28 ,":                                                              {MaxSplitSize: 128 * mib},
		"max_split_size_mb:20,max_split_size_mb:30":                                                {MaxSplitSize: 30 * mib},
		"max_split_size_mb:18446744073709551615":                                                   {MaxSplitSize: 1 << 60},
		"max_non_split_rounding_mb:64,large_segment_size_mb:40":                                    {MaxNonSplitRounding: 64 * mib, LargeSegmentSize: 40 * mib},
		"roundup_power2_divisions:4":                                                               divided(4),
		"roundup_power2_divisions:[256:1,512:2,1024:4,>:8]":                                        list,
		"roundup_power2_divisions:[]":                                                              {},
		"roundup_power2_divisions:8,roundup_power2_divisions:[1:0]":                                {},
		"garbage_collection_threshold:0.8,per_process_memory_fraction:0.5":                         {GarbageCollectionThreshold: 0.8, MemoryFraction: &fraction},
		"per_process_memory_fraction:0":                                                            {MemoryFraction: &nothing},
		"expandable_segments:True":                                                                 expandable,
		"expandable_segments:True,expandable_segments:False":                                       {},
		"backend:native,throw_on_cudamalloc_oom:True":                                              {ThrowOnCudaMallocOOM: true},
		"pinned_use_cuda_host_register:True,pinned_num_register_threads:8":                         {},
		"release_lock_on_cudamalloc:True,expandable_segments_reserve_by_class:[a:0.5,b:40G]":       {},
		"graph_capture_record_stream_reuse:True,pinned_use_background_threads:True,backend:native": {},
	} {
		got, err := ParseSettings(text)
		require.NoError(t, err, text)
		require.Equal(t, want, got, text)
	}
}

func TestParseSettingsRefuses(t *testing.T) {
	for text, row := range map[string]struct {
		code          fault.Code
		message, hint string
	}{
		"expandable_segment:True":                           {fault.InvalidArgument, `"expandable_segment"`, "did you mean expandable_segments?"},
		"max_split_size:128":                                {fault.InvalidArgument, `"max_split_size"`, "did you mean max_split_size_mb?"},
		"backend:cudaMallocAsync":                           {fault.Unsupported, "cudaMallocAsync", "leave the backend out"},
		"backend:jemalloc":                                  {fault.InvalidArgument, "backend:jemalloc", "native"},
		"max_split_size_mb:19":                              {fault.InvalidArgument, "max_split_size_mb:19", "from 20 on"},
		"max_split_size_mb:21x":                             {fault.InvalidArgument, "21x", "a whole number"},
		"max_split_size_mb:-1":                              {fault.InvalidArgument, "-1", "a whole number"},
		"max_split_size_mb:[128]":                           {fault.InvalidArgument, "128", "a whole number"},
		"large_segment_size_mb:40,max_split_size_mb:30":     {fault.InvalidArgument, "max_split_size_mb:30", "from 40 on"},
		"max_split_size_mb:30,large_segment_size_mb:40":     {fault.InvalidArgument, "below large_segment_size_mb", "raise"},
		"large_segment_size_mb:10":                          {fault.InvalidArgument, "large_segment_size_mb:10", "from 11 on"},
		"large_segment_size_mb:21,expandable_segments:True": {fault.InvalidArgument, "2 MB", "even"},
		"max_non_split_rounding_mb:19":                      {fault.InvalidArgument, "max_non_split_rounding_mb:19", "from 20 on"},
		"roundup_power2_divisions:3":                        {fault.InvalidArgument, "divisions:3", "power of two"},
		"roundup_power2_divisions:0":                        {fault.InvalidArgument, "divisions:0", "power of two"},
		"roundup_power2_divisions:[3:1]":                    {fault.InvalidArgument, "3:1", "powers of two"},
		"roundup_power2_divisions:[256:3]":                  {fault.InvalidArgument, "256:3", "powers of two"},
		"roundup_power2_divisions:[256]":                    {fault.InvalidArgument, "256", "powers of two"},
		"roundup_power2_divisions:[256:1":                   {fault.InvalidArgument, "not understood at", "key:[a:b,c:d]"},
		"garbage_collection_threshold:1":                    {fault.InvalidArgument, "threshold:1", "both excluded"},
		"garbage_collection_threshold:NaN":                  {fault.InvalidArgument, "NaN", "both excluded"},
		"per_process_memory_fraction:1.5":                   {fault.InvalidArgument, "fraction:1.5", "from 0 to 1"},
		"expandable_segments:true":                          {fault.InvalidArgument, "expandable_segments:true", "True or False"},
		"expandable_segments":                               {fault.InvalidArgument, "not understood at", "key:value"},
		"expandable_segments:":                              {fault.InvalidArgument, "not understood at", "key:value"},
		"expandable_segments:]":                             {fault.InvalidArgument, "not understood at", "key:value"},
		",":                                                 {fault.InvalidArgument, "not understood at", "key:value"},
		"expandable_segments:True max_split_size_mb:128":    {fault.InvalidArgument, "Truemax_split", "key:value"},
		"expandable_segments:True:max_split_size_mb:128":    {fault.InvalidArgument, "True:max_split", "key:value"},
		string(make([]byte, maxText+1)):                     {fault.InvalidArgument, "at most 4096", ""},
	} {
		settings, err := ParseSettings(text)
		require.ErrorContains(t, err, row.message, text)
		var failure *fault.Error
		require.True(t, errors.As(err, &failure), text)
		require.Equal(t, row.code, failure.Code, text)
		require.Contains(t, failure.Hint, row.hint, text)
		require.Zero(t, settings, text)
	}
}

// FuzzParseSettings: any text is settings with which an allocator works, or one clear error.
func FuzzParseSettings(f *testing.F) {
	for _, seed := range []string{"", "max_split_size_mb:128,expandable_segments:True", "roundup_power2_divisions:[256:1,512:2,>:8]",
		"garbage_collection_threshold:0.8,per_process_memory_fraction:0.5", "backend:native,pinned_use_cuda_host_register:True", "a:[b"} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, text string) {
		settings, err := ParseSettings(text)
		if err != nil {
			require.NotEqual(t, fault.Internal, fault.From(err).Code)
			require.NotEmpty(t, err.Error())
			return
		}
		settings.Limit = 200 * mib
		a := New(settings)
		for _, size := range []uint64{1, 3 * mib, 30 * mib, 150 * mib} {
			if block, err := a.Malloc(size); err == nil {
				require.NoError(t, a.Free(block))
			}
		}
		a.EmptyCache()
		checkInvariants(t, a)
		require.Zero(t, a.Stats().Reserved)
	})
}
