package dataset

import (
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"

	"github.com/asrconfig/asrconfig-go/core/fault"
)

// audioColumns are the names of the column that holds the path, the first that is there. Case does not matter.
var audioColumns = []string{
	"audio_filepath", "audio", "path", "file", "wav", "filename", "file_name", "audio_path", "audio_file", "file_path",
	"filepath", "wav_path", "wav_filename", "speech",
}

// textColumns are the names of the column that holds what is said, the first that is there.
var textColumns = []string{
	"text", "sentence", "transcription", "transcript", "normalized_text", "raw_transcription", "wrd",
	"normalized_transcription", "normalised_text", "target_text", "label", "caption",
}

// Columns are the usual names of the columns with paths and with transcripts, the preferred ones first.
func Columns() (audio, text []string) { return slices.Clone(audioColumns), slices.Clone(textColumns) }

// column finds the first of the wanted names in a header; -1 without any.
func column(names []string, wanted ...string) int {
	for _, w := range wanted {
		if i := slices.IndexFunc(names, func(n string) bool { return strings.EqualFold(strings.TrimSpace(n), w) }); i >= 0 {
			return i
		}
	}
	return -1
}

// either is the name that the caller gives, or else the usual ones.
func either(given string, usual []string) []string {
	if given != "" {
		return []string{given}
	}
	return usual
}

// columnName is what columns are called, also several of them where another sign divides them: "id;path". It is compiled at
// its first use, which takes as long as loading the rest of the library.
var columnName = sync.OnceValue(func() *regexp.Regexp {
	return regexp.MustCompile(`^\pL[\pL\pN_.-]{0,31}( [\pL\pN_.-]{1,31})?([,;|]\pL[\pL\pN_.-]{0,31}( [\pL\pN_.-]{1,31})?)*$`)
})

// quotable are names of columns as messages may repeat them: those of a file that is not a table are not quoted.
func quotable(names []string) []string {
	shown := slices.Clone(names[:min(len(names), 30)])
	for i, name := range shown {
		if len(name) > 256 || !columnName().MatchString(name) {
			shown[i] = "no name of a column"
		}
	}
	return shown
}

// missing is the error of a manifest without a path column. A listing tells the names that it has instead.
func (m *manifest) missing(names []string) error {
	shown := quotable(names)
	if m.listing != nil && len(m.entries) == 0 {
		m.listing.Columns = shown
		return errNoColumn
	}
	for i, name := range shown {
		shown[i] = strconv.Quote(name)
	}
	return fault.New(fault.InvalidArgument, "name the column with the paths one of: "+strings.Join(audioColumns, ", "),
		"manifest %s has no column with paths; columns found: %s", fault.Printable(m.path), strings.Join(shown, ", "))
}
