# CMake function that compiles a model with driftc:
#
#   drift_add_bundle(TARGET MODEL TARGETS PROFILE... [PRECISION f16] [OUTPUT FILE] [DEPENDS FILE...] [ARGS ARG...])
#
# TARGET is a new target of the build. MODEL is an .onnx file, a .gguf file or a Hugging Face folder. The bundle is OUTPUT, by
# default TARGET.drift in the build folder; the target's property DRIFT_BUNDLE has its path. ARGS are further arguments of
# `driftc compile`. The bundle is made again if the model, a file of DEPENDS, a profile or the compiler changes.

set(_drift_prefix_of_bundles "${CMAKE_CURRENT_LIST_DIR}/../../..")

function(drift_add_bundle target model)
    cmake_parse_arguments(PARSE_ARGV 2 arg "" "PRECISION;OUTPUT" "TARGETS;DEPENDS;ARGS")
    set(place "drift_add_bundle(${target})")
    if(arg_UNPARSED_ARGUMENTS)
        message(FATAL_ERROR "${place}: unknown arguments: ${arg_UNPARSED_ARGUMENTS}; pass options of driftc compile after ARGS")
    endif()
    if(NOT arg_TARGETS)
        message(FATAL_ERROR "${place}: no target profile; add TARGETS with names of `driftc targets list`")
    endif()
    if(NOT DRIFT_COMPILER AND DEFINED ENV{DRIFTC})
        set(DRIFT_COMPILER "$ENV{DRIFTC}" CACHE FILEPATH "Path of driftc")
    endif()
    find_program(DRIFT_COMPILER driftc HINTS "${_drift_prefix_of_bundles}/bin" DOC "Path of driftc")
    if(NOT DRIFT_COMPILER)
        message(FATAL_ERROR "${place}: the compiler driftc is not in PATH; install it, or set DRIFT_COMPILER to its path")
    endif()

    get_filename_component(model "${model}" ABSOLUTE)
    if(IS_DIRECTORY "${model}")
        file(GLOB inputs CONFIGURE_DEPENDS "${model}/*")
    elseif(EXISTS "${model}" OR CMAKE_VERSION VERSION_LESS 3.20)
        # Exporters write external data of an ONNX file to one of these names.
        file(GLOB inputs "${model}" "${model}.data" "${model}_data")
    else()
        set(inputs "${model}") # Another command of the build makes the model.
    endif()

    set(options)
    foreach(profile IN LISTS arg_TARGETS)
        if(profile MATCHES "[/\\]|\\.toml$")
            get_filename_component(profile "${profile}" ABSOLUTE)
            list(APPEND inputs "${profile}")
        endif()
        list(APPEND options -t "${profile}")
    endforeach()
    if(arg_PRECISION)
        list(APPEND options --precision "${arg_PRECISION}")
    endif()
    if(NOT arg_OUTPUT)
        set(arg_OUTPUT "${target}.drift")
    endif()
    get_filename_component(bundle "${arg_OUTPUT}" ABSOLUTE BASE_DIR "${CMAKE_CURRENT_BINARY_DIR}")
    get_filename_component(folder "${bundle}" DIRECTORY)
    file(MAKE_DIRECTORY "${folder}")

    add_custom_command(
        OUTPUT "${bundle}"
        COMMAND "${DRIFT_COMPILER}" compile "${model}" ${options} ${arg_ARGS} -o "${bundle}"
        DEPENDS ${inputs} ${arg_DEPENDS} "${DRIFT_COMPILER}"
        WORKING_DIRECTORY "${CMAKE_CURRENT_SOURCE_DIR}"
        COMMENT "Compiling ${target}.drift"
        VERBATIM)
    add_custom_target("${target}" ALL DEPENDS "${bundle}")
    set_target_properties("${target}" PROPERTIES DRIFT_BUNDLE "${bundle}")
endfunction()
