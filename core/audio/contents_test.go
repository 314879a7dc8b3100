package audio

import (
	"os"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/asrconfig/asrconfig-go/core/audio/audiotest"
	"github.com/asrconfig/asrconfig-go/core/fault"
)

const secret = "swordfish"

func TestWhatIsNoAudioIsNamedAndNotQuoted(t *testing.T) {
	for content, name := range map[string]string{
		"root:" + secret + ":19000:0:99999:7:::\n":              "text",
		"\xff" + secret + "\x01":                                "of no known format",
		"version https://git-lfs.github.com/spec/v1\n" + secret: "a Git LFS pointer (git lfs pull fetches the file)",
		"\n <!DOCTYPE HTML>" + secret:                           "an HTML page, as a failed download leaves",
		"<html lang=en>" + secret:                               "an HTML page, as a failed download leaves",
		"PK\x03\x04" + secret:                                   "a ZIP archive",
		"\xff\xd8\xff\xe0" + secret:                             "a JPEG image",
		"PAR1" + secret:                                         "a Parquet file",
		string(make([]byte, 500)) + secret:                      "zeros, as an unfinished download leaves",
		"é" + secret:                                            "text",
	} {
		path := audiotest.Write(t, []byte(content))
		_, _, err := File(path)
		audiotest.RefusedAs(t, err, fault.Corrupt, path+": ", "is not audio: its content is "+name)
		assert.NotContains(t, err.Error()+fault.From(err).Hint, secret)
	}
}

// TestNoErrorQuotesMoreThanAName puts a text behind the magic bytes of every format.
func TestNoErrorQuotesMoreThanAName(t *testing.T) {
	for _, magic := range []string{
		"RIFF\x24\x00\x00\x00WAVE", "FORM\x00\x00\x00\x24AIFF", "FORM\x00\x00\x00\x24AIFC", ".snd", "NIST_1A\n", "NIST_1A\n   1024\n", "caff\x00\x01\x00\x00",
		"fLaC", "OggS", "#!AMR\n", "#!AMR-WB\n", "\x00\x00\x00\x18ftypM4A ", "\x1aE\xdf\xa3", "ID3\x03\x00\x00\x00\x00\x00\x02", "\xff\xfb\x90\x64",
	} {
		for _, between := range []string{"", "\n", " ", "\x00\x00\x00\x00"} {
			_, err := Bytes("x", []byte(magic+between+secret+secret+secret+"\n"+secret+string(make([]byte, 2000))))
			if err != nil {
				assert.NotContains(t, err.Error(), secret, "%q", magic+between)
			}
		}
	}
	_, err := Bytes("x", []byte("NIST_1A\n   1024\nsample_coding -s9 "+string(make([]byte, 900))+secret))
	require.Error(t, err)
	assert.Less(t, len(err.Error()), 500)
	_, err = os.Stat("/etc/shadow")
	if err == nil {
		_, _, err = File("/etc/shadow")
		require.Error(t, err)
		assert.NotContains(t, err.Error(), "root:")
	}
}
