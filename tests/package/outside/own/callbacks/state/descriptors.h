// The outsider's, which a header of ours must not find.
#pragma once

#error "a header of the package took the outsider's callbacks/state/descriptors.h for its own"
