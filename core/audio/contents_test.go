package audio

import (
	"testing"

	"github.com/stretchr/testify/assert"

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
