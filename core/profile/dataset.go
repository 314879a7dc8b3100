package profile

import "github.com/asrconfig/asrconfig-go/core/units"

// Clip is what is known about one audio file or buffer.
type Clip struct {
	// file path, or the name given to a buffer or an array
	Path string `json:"path"`
	// playable seconds; absent when the file could not be read
	DurationS *float64 `json:"duration_s"`
	// what the header says, only when it differs from what the file holds
	ClaimedS   *float64 `json:"claimed_duration_s"`
	SampleRate int      `json:"sample_rate"` // Hz; 0 when unreadable
	Channels   int      `json:"channels"`    // 0 when unreadable
	// per stored sample; 0 where the codec has none (Vorbis), and when unreadable
	Bits int `json:"bits"`
	// "pcm_s16le", "pcm_f32le", "flac", "vorbis", "array"; "" when unreadable
	Codec string `json:"codec"`
	// how the duration is known, see Methods; "" when unreadable
	Method    string `json:"method"`
	SizeBytes int64  `json:"size_bytes"` // on disk, or of the buffer
	Error     string `json:"error"`      // why it cannot be used; "" when it can
	// of storage that did not answer, and so not of the clip; nil where it did
	Lost error `json:"-"`
}

// Methods are the ways in which a duration was determined:
//   - "header": from the header, and the file's size agrees;
//   - "tail": from the end of the file;
//   - "walked": frames or pages were counted one by one;
//   - "estimated": computed from a rate or a sample of frames, where counting is impossible or
//     takes too long;
//   - "given": by the caller, of an array or a clip measured before.
var Methods = []string{"header", "tail", "walked", "estimated", "given"}

// BadFile is one file that was counted out, with the reason.
type BadFile struct {
	Path  string `json:"path"`
	Error string `json:"error"`
}

// Histogram is the number of clips by duration: counts[i] of edges_s[i] ≤ duration < edges_s[i + 1],
// the last bin closed.
type Histogram struct {
	EdgesS []float64 `json:"edges_s"`
	Counts []int     `json:"counts"`
}

// Padding is the cost of one batching strategy: each batch lasts as long as its longest clip.
type Padding struct {
	// "random", "grouped" (as group_by_length of the Trainer), "bucketed" (ten buckets of equal
	// seconds) or "sorted"
	Order   string  `json:"order"`
	PaddedS float64 `json:"padded_s"` // seconds that all batches hold, padding included
	Waste   float64 `json:"waste"`    // 0..1: the share of them that is padding
}

// Outliers are a few long clips that much of the batches' time is spent on.
type Outliers struct {
	OverS float64 `json:"over_s"` // they are longer than this
	Count int     `json:"count"`  // of the measured clips
	// 0..1: by how much random batches would hold fewer seconds without them
	PaddedShare float64 `json:"padded_share"`
}

// Duplicates are clips that are very likely copies of others: the same size, the same duration, the
// same bytes where they were read.
type Duplicates struct {
	Count  int        `json:"count"`  // of the measured clips, the first of each group not counted
	Hours  float64    `json:"hours"`  // what those last
	Groups [][]string `json:"groups"` // at most 20, with at most 5 paths each
}

// Sampling is how far a sample may be off, with 95 % confidence.
type Sampling struct {
	// those of a stream that rows were read from; 0 where clips were drawn one by one
	Shards     int      `json:"shards"`
	Population *int     `json:"population"`  // clips that were drawn from; absent: unknown
	MeanLowS   float64  `json:"mean_low_s"`  // the mean length of all clips is at least this
	MeanHighS  *float64 `json:"mean_high_s"` // and at most this; absent: one clip does not tell
	// 0..1: at most this share of all clips is longer than the longest measured one
	LongerShare float64 `json:"longer_share"`
}

// Dataset summarises the audio. Statistics cover the usable clips that were measured.
type Dataset struct {
	// "clips", or "texts": tokens, 50 of which count as a second
	RowKind units.RowKind `json:"row_kind"`
	// clips in the dataset, bad ones not counted; an estimate when Sampled
	SampleCount   int `json:"sample_count"`
	MeasuredCount int `json:"measured_count"` // usable clips that were measured
	// true when a random sample stands for the whole
	Sampled bool `json:"sampled"`
	// absent when all were measured, and without a usable clip
	Sampling *Sampling `json:"sampling"`
	BadCount int       `json:"bad_count"` // clips that cannot be used
	// the first 10 000 of them, in source order
	BadFiles []BadFile `json:"bad_files"`
	// clips that hold less than their header claims
	ShortenedCount int     `json:"shortened_count"`
	MeanS          float64 `json:"mean_s"`
	StdS           float64 `json:"std_s"` // population standard deviation
	MinS           float64 `json:"min_s"`
	MaxS           float64 `json:"max_s"`
	// "p1" "p5" "p10" "p25" "p50" "p75" "p90" "p95" "p99", linear interpolation
	PercentilesS map[string]float64 `json:"percentiles_s"`
	Histogram    Histogram          `json:"histogram"`
	TotalHours   float64            `json:"total_hours"` // scaled to the whole when Sampled
	SizeBytes    int64              `json:"size_bytes"`  // on disk, scaled when Sampled
	// as 16 kHz mono float32: seconds × 16000 × 4, scaled when Sampled
	DecodedBytes int64          `json:"decoded_bytes"`
	ShareOver30S float64        `json:"share_over_30s"` // 0..1, by count
	SampleRates  map[string]int `json:"sample_rates"`   // clips by rate, in Hz as text
	Channels     map[string]int `json:"channels"`       // clips by channel count as text
	Codecs       map[string]int `json:"codecs"`         // clips by codec
	Methods      map[string]int `json:"methods"`        // clips by how durations are known
	BatchSize    int            `json:"batch_size"`     // clips a batch, for Padding
	// by order; of the measured clips; empty without any
	Padding []Padding `json:"padding"`
	// absent when no few clips take much time
	Outliers   *Outliers  `json:"outliers"`
	Duplicates Duplicates `json:"duplicates"`
	// what may go wrong in training; silence is not looked for
	Warnings []string `json:"warnings"`
	// what was read: "folder /data", "list of 40 paths", "40 arrays"
	Source string `json:"source"`
}
