module mainstem/conformance/rabbit-hole

go 1.26.0

require github.com/michaelklishin/rabbit-hole/v2 v2.12.0
